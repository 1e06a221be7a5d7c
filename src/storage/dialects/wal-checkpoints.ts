import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";

/** A checkpoint is due when this many pages of the log are not written back, as SQLite itself has it. */
const PAGES = 1000;

/**
 * SQLite begins the log anew, instead of making it longer, when all of it is written back. Commits add to it during a
 * checkpoint, so further checkpoints follow, each much shorter than the one before.
 */
const MOST_IN_A_ROW = 5;

/** Writes the log back for each message. Sends null, or an error. */
const THREAD = `
const { parentPort, workerData: { library, file } } = require("node:worker_threads");
const connection = new (require(library))(file, { fileMustExist: true });
connection.pragma("synchronous = NORMAL");
parentPort.on("message", () => {
  try {
    let pages;
    for (let count = 0; count < ${MOST_IN_A_ROW}; count++) {
      const [{ log }] = connection.pragma("wal_checkpoint(PASSIVE)");
      if (log === pages) break;
      pages = log;
    }
    parentPort.postMessage(null);
  } catch ({ message, code }) {
    parentPort.postMessage({ message, code });
  }
});`;

interface Failure {
  message: string;
  /** That of SQLite. */
  code?: string;
}

/**
 * Writes the log of a database back in a thread with a connection of its own. On a busy disk that takes hundreds of
 * milliseconds, which would stop the event loop. Commits go on meanwhile. The thread starts with the first
 * checkpoint, once the log is long enough for one. It costs some megabytes.
 */
export class WalCheckpoints {
  readonly #file: string;
  readonly #pagesLeft: () => number;
  readonly #onError: (error: Failure) => void;
  #thread: Worker | null = null;
  #isOver = false;
  #isRunning = false;
  /** Whether a commit came while a checkpoint ran, which may have missed it. */
  #again = false;

  /**
   * `pagesLeft` returns how many pages of the log are not written back. `onError` gets the errors of checkpoints, which
   * are tried again after later commits.
   */
  constructor(file: string, pagesLeft: () => number, onError: (error: Failure) => void) {
    this.#file = file;
    this.#pagesLeft = pagesLeft;
    this.#onError = onError;
  }

  /** Notes a commit that has written to the log. No error of the log makes that commit fail. */
  noteCommit(): void {
    this.#again = this.#isRunning;
    if (this.#isRunning || this.#isOver) return;
    try {
      if (this.#pagesLeft() < PAGES) return;
      this.#thread ??= this.#start();
      this.#thread.postMessage(null);
      this.#isRunning = true;
    } catch (error) {
      this.#onError(error as Failure);
    }
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
    thread.on("message", (failure: Failure | null) => {
      this.#isRunning = false;
      if (failure !== null) this.#onError(failure);
      else if (this.#again) this.noteCommit();
    });
    // Without the thread, SQLite writes the log back itself when it is some times as long.
    thread.on("error", (error: Failure) => {
      this.#isOver = true;
      this.#onError(error);
    });
    thread.unref();
    return thread;
  }
}
