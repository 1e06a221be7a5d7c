import { collectGarbage } from "../../kernel/memory/garbage.ts";

const QUIET_MS = 1000;

/** Returns the memory of large bodies to the system. */
export class MemoryReturn {
  readonly #collect: () => void;
  #timer: NodeJS.Timeout | undefined;

  /** `collect` collects the garbage; the default asks V8 for it. */
  constructor(collect: () => void = collectGarbage) {
    this.#collect = collect;
  }

  /**
   * Collects garbage a second after the last large body. V8 would release the memory only when more is needed, which
   * never happens in an idle service. Takes about 20 ms. When `isQuiet` returns false by then, nothing happens: the
   * next body that ends tries again.
   */
  soon(isQuiet: () => boolean): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (isQuiet()) this.#collect();
    }, QUIET_MS).unref();
  }
}
