import { StorageUnavailable } from "./ports/storage-unavailable.ts";

/** How many groups are under way at most, and the most entries of one. */
const [GROUPS_AT_ONCE, MOST_IN_A_GROUP] = [4, 50];

interface Waiting<Entry, Result> {
  key: string;
  entry: Entry;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/**
 * Joins entries that come at the same time into groups, and does the work once for each group: a transaction for each
 * entry would take most of the time. An entry that comes alone does not wait. Two groups that are under way never share a
 * key, or they would wait for each other's locks. While a group waits for a lock, groups of other keys begin.
 */
export class JoinedWork<Entry, Result> {
  readonly #work: (entries: readonly Entry[]) => Promise<readonly Result[]>;
  #waiting: Waiting<Entry, Result>[] = [];
  readonly #keysAtWork = new Set<string>();
  #groups = 0;
  #isAboutToBegin = false;

  /** `work` returns a result for each of its entries, in their order. */
  constructor(work: (entries: readonly Entry[]) => Promise<readonly Result[]>) {
    this.#work = work;
  }

  add(key: string, entry: Entry): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, entry, resolve, reject });
      this.#beginSoon();
    });
  }

  /** Entries that come in the same turn of the event loop belong together. */
  #beginSoon(): void {
    if (this.#isAboutToBegin || this.#groups === GROUPS_AT_ONCE) return;
    this.#isAboutToBegin = true;
    setImmediate(() => {
      this.#isAboutToBegin = false;
      this.#begin();
    });
  }

  #begin(): void {
    while (this.#groups < GROUPS_AT_ONCE) {
      const group = this.#waiting.filter(({ key }) => !this.#keysAtWork.has(key)).slice(0, MOST_IN_A_GROUP);
      if (group.length === 0) return;
      const taken = new Set(group);
      this.#waiting = this.#waiting.filter((each) => !taken.has(each));
      for (const { key } of group) this.#keysAtWork.add(key);
      this.#groups++;
      void this.#run(group).then(() => {
        for (const { key } of group) this.#keysAtWork.delete(key);
        this.#groups--;
        this.#beginSoon();
      });
    }
  }

  async #run(group: readonly Waiting<Entry, Result>[]): Promise<void> {
    try {
      const results = await this.#work(group.map(({ entry }) => entry));
      for (const [at, { resolve }] of group.entries()) resolve(results[at] as Result);
    } catch (error) {
      if (group.length > 1 && !(error instanceof StorageUnavailable)) {
        // A single entry may be the cause, and would make each group fail that it is in.
        for (const each of group) await this.#run([each]);
      } else for (const { reject } of group) reject(error);
    }
  }
}
