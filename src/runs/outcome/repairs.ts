import type { ResultLine } from "../directory/results-file.ts";
import { isFailed, isGone, isLost, isMissing, isRefused, isUnknownHere } from "./image-outcome.ts";

/**
 * A way to get images that are not here. `fetch`: the same command again, or `download`. `retry` also makes failed images
 * again, `retryLost` also lost ones, `retryHere` also those whose batches the service does not know. `edit`: change the
 * prompts that were refused.
 */
export interface Repair {
  kind: "fetch" | "retry" | "retryLost" | "retryHere" | "edit";
  /** The images that it makes, which are paid. For `edit`, those whose prompts have to change. */
  images: number;
}

/**
 * Returns the ways to get the images that are not here, the cheapest first. Each one does what those before it do, and
 * more. Empty if nothing can help, or all images are here.
 */
export function repairsOf(lines: readonly Pick<ResultLine, "status" | "error" | "files">[]): Repair[] {
  const missing = lines.filter(isMissing);
  const failed = lines.filter(isFailed);
  const retried = failed.filter((line) => !isRefused(line)).length;
  const lost = missing.filter(isLost).length;
  const mayCome = missing.some(({ error }) => !isGone(error?.code));
  const repairs: Repair[] = [];
  if (mayCome) repairs.push({ kind: "fetch", images: 0 });
  // A run that another service has begun goes on here only on request.
  if (missing.some(isUnknownHere)) return [...repairs, { kind: "retryHere", images: retried + lost }];
  if (retried > 0) repairs.push({ kind: "retry", images: retried });
  if (lost > 0) repairs.push({ kind: "retryLost", images: retried + lost });
  if (repairs.length === 0 && failed.length > 0) repairs.push({ kind: "edit", images: failed.length });
  return repairs;
}
