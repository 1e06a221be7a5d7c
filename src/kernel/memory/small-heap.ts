import { setFlagsFromString } from "node:v8";
import { collectGarbage } from "./garbage.ts";

/** After this time, everything that only the start needed is garbage. */
const STARTED_MS = 1000;

let isKept = false;

/**
 * Makes the engine collect garbage instead of growing its heap by tens of megabytes, which costs a little time. The
 * space of new objects keeps its present size, and that of old ones grows in small steps. Call it when
 * work begins: the garbage of its first second is collected. Does nothing if the command line of Node sets the size of that
 * space (`node --max-semi-space-size=…`), because then somebody has chosen it. `NODE_OPTIONS` does not count.
 */
export function keepHeapSmall(): void {
  if (process.execArgv.some((option) => /semi[-_]space/.test(option))) return;
  // The first step begins with a collection.
  setTimeout(() => collectGarbage(), STARTED_MS).unref();
  if (isKept) return;
  isKept = true;
  keep();
  // The engine puts the factor back to 2, its default, for the heap of each thread.
  process.on("worker", (worker) => worker.once("online", keep));
}

function keep(): void {
  setFlags(1, 30);
}

function setFlags(youngFactor: number, oldPercent: number): void {
  setFlagsFromString(`--semi-space-growth-factor=${youngFactor}`);
  setFlagsFromString(`--heap-growing-percent=${oldPercent}`);
}
