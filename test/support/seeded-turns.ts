import { seededRandom } from "../soak/random.ts";

interface Waiter {
  who: object | null;
  go(): void;
}

/**
 * Decides who goes on: whoever reaches a turn waits, and of all who wait a random one is let go, one at a time. The same
 * seed gives the same order again.
 */
export class SeededTurns {
  readonly random: () => number;
  #waiting: Waiter[] = [];
  readonly #gone = new Set<object | null>();
  readonly #stopped = new Set<object | null>();
  #isOver = false;

  constructor(seed: number) {
    this.random = seededRandom(seed);
  }

  /** A point at which anything else may happen first. Never comes back once this is over, or over for `who`. */
  turn(who: object | null = null): Promise<void> {
    return new Promise((resolve) => {
      if (!this.#isOver && !this.#gone.has(who)) this.#waiting.push({ who, go: resolve });
    });
  }

  /** Lets nobody of these go on any more, as when their process is killed. */
  endOf(who: object): void {
    this.#gone.add(who);
    this.#waiting = this.#waiting.filter((waiter) => waiter.who !== who);
  }

  /** Lets nobody of these go on until they may, as when their process is stopped by a signal. */
  setStopped(who: object, isStopped: boolean): void {
    if (isStopped) this.#stopped.add(who);
    else this.#stopped.delete(who);
  }

  /** Lets up to `count` go, as long as somebody waits; answers how many. Between two, everything that can run does. */
  async run(count = Number.POSITIVE_INFINITY): Promise<number> {
    for (let done = 0; done < count; done++) {
      await quiet();
      const able = this.#waiting.filter(({ who }) => !this.#stopped.has(who));
      const next = able[Math.floor(this.random() * able.length)];
      if (!next) return done;
      this.#waiting.splice(this.#waiting.indexOf(next), 1);
      next.go();
    }
    await quiet();
    return count;
  }

  /** Lets others go until the work is done. */
  async until<T>(work: Promise<T>): Promise<T> {
    let isDone = false;
    const done = () => {
      isDone = true;
    };
    work.then(done, done);
    while (!isDone) await this.run(1);
    return work;
  }

  /** Nobody goes on any more, as when the process is killed. */
  end(): void {
    this.#isOver = true;
    this.#waiting = [];
  }
}

/** Turns of the event loop in which a write gathers others, runs and is reported. */
const LOOP_TURNS = 3;

/** A sync of the log in Node's pool of threads, and in a thread of its own. */
const SYNCS = ["FSReqCallback", "MessagePort"];

/** Everything that waits for nothing but the processor, or for the log of the database on the disk, has run. */
async function quiet(): Promise<void> {
  for (let turn = 0; turn < LOOP_TURNS; turn++) {
    await new Promise((resolve) => setImmediate(resolve));
    if (process.getActiveResourcesInfo().some((kind) => SYNCS.includes(kind))) turn = 0;
  }
}
