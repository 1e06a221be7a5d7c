import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

const QUIET_MS = 1000;

let collect: (() => void) | undefined;

/** Gives back the memory of the large bodies of one service. */
export class MemoryReturn {
  #timer: NodeJS.Timeout | undefined;

  /**
   * Asks the engine for it a moment after the last body was answered; on its own the engine gives it back only when more
   * is asked for, which an idle service never does. Takes some 20 ms, once. `isQuiet` says whether no body is there by
   * then: otherwise the next one to leave asks again.
   */
  soon(isQuiet: () => boolean): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (isQuiet()) collectNow();
    }, QUIET_MS).unref();
  }
}

function collectNow(): void {
  if (!collect) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as () => void;
  }
  collect();
}
