import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";

/** A checkpoint is due when the log has about this many pages, as by SQLite's own default. */
const PAGES = 1000;
/** A page of SQLite's default size, with its header in the log. */
const PAGE_BYTES = 4096 + 24;
/** The most pages that a small commit writes. */
const PAGES_A_COMMIT = 20;

/** Writes the log back for each message. Sends the pages that are in the log, or an error. */
const THREAD = `
const { parentPort, workerData: { library, file } } = require("node:worker_threads");
const connection = new (require(library))(file, { fileMustExist: true });
connection.pragma("synchronous = NORMAL");
parentPort.on("message", () => {
  try {
    const [{ log }] = connection.pragma("wal_checkpoint(PASSIVE)");
    parentPort.postMessage({ pages: log });
  } catch ({ message, code }) {
    parentPort.postMessage({ error: { message, code } });
  }
});`;

interface Failure {
  message: string;
  /** That of SQLite. */
  code?: string;
}

type Outcome = { pages: number } | { error: Failure };

/**
 * Writes the log of a database back in a thread with a connection of its own. On a busy disk that takes hundreds of
 * milliseconds, which would stop the event loop. Commits go on meanwhile. The thread starts with the first
 * checkpoint, once the log is long enough for one. It costs some megabytes.
 */
export class WalCheckpoints {
  readonly #file: string;
  readonly #logBytes: () => number;
  readonly #onError: (error: Failure) => void;
  #thread: Worker | null = null;
  #isOver = false;
  #isRunning = false;
  #commits = 0;
  #commitsToNext = PAGES / PAGES_A_COMMIT;
  #pagesBefore = 0;

  /** `logBytes` returns the size of the log. `onError` gets the errors of checkpoints, which are tried again later. */
  constructor(file: string, logBytes: () => number, onError: (error: Failure) => void) {
    this.#file = file;
    this.#logBytes = logBytes;
    this.#onError = onError;
  }

  /** Notes a commit that has written to the log. */
  noteCommit(): void {
    this.#commits++;
    if (this.#commits < this.#commitsToNext || this.#isRunning || this.#isOver) return;
    if (this.#thread === null && this.#logBytes() < PAGES * PAGE_BYTES) {
      this.#commitsToNext = this.#commits + PAGES / PAGES_A_COMMIT;
      return;
    }
    this.#isRunning = true;
    this.#thread ??= this.#start();
    this.#thread.postMessage(null);
  }

  /** Ends the thread, and closes its connection. */
  async close(): Promise<void> {
    this.#isOver = true;
    if (this.#thread !== null) await this.#thread.terminate();
  }

  #start(): Worker {
    const library = createRequire(import.meta.url).resolve("better-sqlite3");
    const workerData = { library, file: this.#file };
    const thread = new Worker(THREAD, { eval: true, execArgv: [], workerData });
    thread.on("message", (outcome: Outcome) => this.#end(outcome));
    // Without the thread, SQLite writes the log back itself when it is some times as long.
    thread.on("error", (error: Failure) => {
      this.#isOver = true;
      this.#onError(error);
    });
    thread.unref();
    return thread;
  }

  #end(outcome: Outcome): void {
    this.#isRunning = false;
    if ("error" in outcome) this.#onError(outcome.error);
    else if (outcome.pages > 0) this.#pace(outcome.pages);
    this.#commits = 0;
  }

  /** Decides after how many commits the next checkpoint is due. A log whose pages all were written back begins anew. */
  #pace(pages: number): void {
    const written = pages > this.#pagesBefore ? pages - this.#pagesBefore : pages;
    this.#pagesBefore = pages;
    this.#commitsToNext = Math.max(1, Math.round((PAGES * this.#commits) / written));
  }
}
