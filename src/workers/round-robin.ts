/**
 * Chooses the next of several things that have owners. Owners take turns, and so do the things of one owner. So neither
 * a large thing nor an owner of many things holds up the others.
 */
export class RoundRobin<T> {
  /** Owner → id → thing. The first of each is next. */
  readonly #owners = new Map<string, Map<string, T>>();

  /** Puts a thing at the end of its owner's things. Does nothing for a thing that is among them already. */
  add(owner: string, id: string, thing: T): void {
    const things = this.#owners.get(owner) ?? new Map<string, T>();
    if (!things.has(id)) things.set(id, thing);
    this.#owners.set(owner, things);
  }

  delete(owner: string, id: string): void {
    const things = this.#owners.get(owner);
    things?.delete(id);
    if (things?.size === 0) this.#owners.delete(owner);
  }

  /** Returns the next thing, and moves it and its owner to the end. Null when there is none. */
  next(): T | null {
    for (const [owner, things] of this.#owners) {
      for (const [id, thing] of things) {
        this.#owners.delete(owner);
        this.#owners.set(owner, things);
        things.delete(id);
        things.set(id, thing);
        return thing;
      }
    }
    return null;
  }
}
