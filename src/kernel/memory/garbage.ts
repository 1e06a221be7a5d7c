import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

let collect: ((options?: { type: "minor" }) => void) | undefined;

/**
 * Collects garbage now, in about 20 ms. `young`: only what was allocated a short time ago, in about a millisecond. The
 * engine counts buffers as little, and lets tens of megabytes of them lie.
 */
export function collectGarbage(what: "all" | "young" = "all"): void {
  if (!collect) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as typeof collect;
    // The engine takes compiled code only under the flags that it was made under. The function works on.
    setFlagsFromString("--no-expose-gc");
  }
  collect?.(what === "young" ? { type: "minor" } : undefined);
}

/** After so many bytes, the buffers that they came in are given back. */
const YOUNG_BYTES = 4 * 1024 * 1024;
/** Buffers that lay longer, such as those of an image that was stored meanwhile, are given back more seldom. */
const YOUNG_BEFORE_ALL = 8;

// The garbage is that of the whole process.
let passed = 0;
let collections = 0;

/** Counts the bytes of a stream that is only passed on, and collects the buffers that they came in now and then. */
export function countPassedOn(bytes: number): void {
  passed += bytes;
  if (passed < YOUNG_BYTES) return;
  passed = 0;
  collectGarbage(++collections % YOUNG_BEFORE_ALL === 0 ? "all" : "young");
}
