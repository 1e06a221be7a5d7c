import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

const QUIET_MS = 1000;

let collect: (() => void) | undefined;
let timer: NodeJS.Timeout | undefined;

/**
 * Asks the engine to give back the memory of large bodies a moment after the last one was answered; on its own it
 * does so only when more is asked for, which an idle service never does. Takes some 20 ms, once. `isQuiet` says
 * whether no body is there by then: otherwise the next one to leave asks again.
 * Rule: LOAD-6.
 */
export function freeMemorySoon(isQuiet: () => boolean): void {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (isQuiet()) collectNow();
  }, QUIET_MS).unref();
}

function collectNow(): void {
  if (!collect) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as () => void;
  }
  collect();
}
