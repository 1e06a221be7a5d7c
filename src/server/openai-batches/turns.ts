/** Lets pieces of work of the same name run one after the other. */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>();

  /** Begins when all earlier work of this name has ended, however it ended. */
  async take<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(name) ?? Promise.resolve();
    const mine = before.then(work, work);
    this.#last.set(name, mine);
    try {
      return await mine;
    } finally {
      if (this.#last.get(name) === mine) this.#last.delete(name);
    }
  }
}
