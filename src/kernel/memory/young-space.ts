import type { EventEmitter } from "node:events";
import { setFlagsFromString } from "node:v8";

let isKept = false;

/**
 * Keeps the space of new objects at its size of now, where the engine would let it grow to 32 MiB. It is cleared more
 * often then, which costs little, and buffers that nobody uses any more are freed sooner. Further calls change nothing.
 */
export function keepYoungSpace(): void {
  if (isKept) return;
  isKept = true;
  const keep = () => setFlagsFromString("--semi-space-growth-factor=1");
  keep();
  // The engine puts the factor back to 2 for the heap of each thread.
  process.on("worker", (worker) => worker.once("online", keep));
  // The engine takes compiled code only under the flags that it was made under (`bin/imgbatch.cjs`).
  const loader: EventEmitter = process;
  loader.on("compile", () => setFlagsFromString("--semi-space-growth-factor=2"));
  loader.on("compiled", keep);
}
