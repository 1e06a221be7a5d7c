import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

let collect: ((options?: { type: "minor" }) => void) | undefined;

/**
 * Collects garbage now, in about 20 ms. With `young` it collects only recent allocations, in about a millisecond. The
 * engine underestimates buffers, and keeps tens of megabytes of dead ones.
 */
export function collectGarbage(what: "all" | "young" = "all"): void {
  if (!collect) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as typeof collect;
    // The engine accepts compiled code only under the flags that it was made with. The function works without the flag.
    setFlagsFromString("--no-expose-gc");
  }
  collect?.(what === "young" ? { type: "minor" } : undefined);
}

/** Dead buffers are collected after this many bytes. */
const YOUNG_BYTES = 4 * 1024 * 1024;
/** Older buffers, such as those of an image that was stored meanwhile, are collected only every eighth time. */
const YOUNG_BEFORE_ALL = 8;

// All streams of the process count together: they share its memory.
let passed = 0;
let collections = 0;

/** Counts the bytes of a stream that is only passed on. Now and then it collects the buffers in which they came. */
export function countPassedOn(bytes: number): void {
  passed += bytes;
  if (passed < YOUNG_BYTES) return;
  passed = 0;
  collectGarbage(++collections % YOUNG_BEFORE_ALL === 0 ? "all" : "young");
}
