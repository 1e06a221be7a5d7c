import { close, fdatasync, openSync, realpathSync } from "node:fs";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";

const syncInPool = promisify(fdatasync);

/** A sync that takes longer may have waited in Node's pool of threads, behind images. */
const LONG_MS = 10;
/** Once long syncs have taken this much time together, a thread of its own is worth its start, which costs about as much. */
const MOST_LONG_MS = 50;

/** Syncs a file for each message, and sends back the error or null. */
const THREAD = `
const { parentPort, workerData } = require("node:worker_threads");
const { fdatasyncSync } = require("node:fs");
parentPort.on("message", () => {
  try {
    fdatasyncSync(workerData);
    parentPort.postMessage(null);
  } catch ({ message, code, errno }) {
    parentPort.postMessage({ message, code, errno });
  }
});`;

/**
 * Makes commits to a write-ahead log durable in another thread, so that the event loop goes on while the disk works.
 * Commits that come during a sync share the next one. The thread is one of Node's pool, until syncs have waited there for
 * some time: then it is one of its own, which costs some megabytes.
 */
export class WalSync {
  readonly #descriptor: number;
  readonly #failure: (cause: unknown) => Error;
  #thread: Worker | null = null;
  #longMs = 0;
  #hasHadThread = false;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  #isClosed = false;

  /**
   * `database`: the file whose log exists. `failure` is called once, when the disk fails, and returns the error with which
   * all waiting and later calls reject.
   */
  constructor(database: string, failure: (cause: unknown) => Error) {
    // SQLite keeps the log beside the file itself, not beside a link to it. Windows syncs no file that was opened
    // read-only.
    this.#descriptor = openSync(`${realpathSync(database)}-wal`, "r+");
    this.#failure = failure;
  }

  /** Resolves when all commits before the last call of `flush` are durable. Null when they are now. */
  get pending(): Promise<void> | null {
    return this.#next ?? this.#running;
  }

  /** Resolves when all commits before this call are durable. */
  flush(): Promise<void> {
    if (this.#running === null) this.#running = this.#begin();
    else this.#next ??= this.#running.then(() => this.#begin());
    return this.#next ?? this.#running;
  }

  /** Frees the thread and the descriptor as soon as no sync uses them; once, because the number of the descriptor comes back. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const free = () => {
      void this.#thread?.terminate();
      close(this.#descriptor);
    };
    if (this.pending === null) free();
    else this.pending.then(free, free);
  }

  /** After a failed sync the disk may report success for what it has lost, so the promise stays for good. */
  async #begin(): Promise<void> {
    try {
      await this.#sync();
    } catch (cause) {
      throw this.#failure(cause);
    }
    // The next one has been waiting for this moment.
    this.#running = this.#next;
    this.#next = null;
  }

  async #sync(): Promise<void> {
    if (this.#thread !== null && (await syncIn(this.#thread))) return;
    const startMs = performance.now();
    // The system reports a failure of the disk to one sync only, so no second one may overtake a slow one.
    await syncInPool(this.#descriptor);
    const tookMs = performance.now() - startMs;
    if (tookMs > LONG_MS) this.#longMs += tookMs;
    if (this.#longMs > MOST_LONG_MS && !this.#hasHadThread) this.#tryThread();
  }

  /** The system may refuse another thread. Then the pool goes on with the syncs. */
  #tryThread(): void {
    this.#hasHadThread = true;
    try {
      this.#startThread();
    } catch {}
  }

  #startThread(): void {
    // Options of the process, such as the one for the kind of a text that is run, are not for this text.
    const thread = new Worker(THREAD, { eval: true, execArgv: [], workerData: this.#descriptor });
    const lose = () => {
      this.#thread = null;
    };
    thread.on("error", lose).on("exit", lose).unref();
    this.#thread = thread;
  }
}

/** Returns false when the thread itself has failed, or has ended: then nothing was synced. */
function syncIn(thread: Worker): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const stop = () => thread.off("message", end).off("error", lose).off("exit", lose).unref();
    const end = (failed: { message: string } | null) => {
      stop();
      if (failed === null) resolve(true);
      else reject(Object.assign(new Error(failed.message), failed));
    };
    const lose = () => {
      stop();
      resolve(false);
    };
    thread.on("message", end).on("error", lose).on("exit", lose).ref();
    thread.postMessage(null);
  });
}
