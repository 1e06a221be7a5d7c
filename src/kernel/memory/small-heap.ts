import { setFlagsFromString } from "node:v8";
import { collectGarbage } from "./garbage.ts";

/** By then, what was needed only for the start is garbage. */
const STARTED_MS = 1000;

let isKept = false;

/**
 * Makes the engine collect garbage more often, for a little time, where it would let its heap grow by tens of megabytes:
 * the space of new objects keeps its size of now, and that of old ones grows in small steps. Compiled code that was kept
 * is of no use afterwards, so the program should be loaded by then. Further calls change nothing.
 */
export function keepHeapSmall(): void {
  if (isKept) return;
  isKept = true;
  const keep = () => setFlagsFromString("--semi-space-growth-factor=1");
  keep();
  // The engine puts the factor back to 2, its default, for the heap of each thread.
  process.on("worker", (worker) => worker.once("online", keep));
  // The first step begins with a collection.
  setFlagsFromString("--heap-growing-percent=30");
  setTimeout(() => collectGarbage(), STARTED_MS).unref();
  // The compiled code that is kept now must have the flags of the next start.
  process.prependListener("exit", () => {
    setFlagsFromString("--semi-space-growth-factor=2");
    setFlagsFromString("--heap-growing-percent=0");
  });
}
