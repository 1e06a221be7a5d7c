import { FIXED_LIMITS } from "../../contract/limits.ts";
import { eachDue, type SweepDeps } from "../each-due.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import { FILES_PREFIX, purgeFile } from "./files.ts";

/** How long an uploaded file is kept. */
export const FILE_RETENTION_MS = FIXED_LIMITS.fileHours * 3_600_000;

interface Deps {
  stores: Stores;
  blobs: BlobStore;
}

/**
 * Removes the files that expire by `dueMs`, and those that were deleted, with their bytes. One failure does not stop the
 * others: the errors are returned, and the next sweep tries again.
 */
export async function sweepFiles(deps: SweepDeps, dueMs: number): Promise<unknown[]> {
  const failures: unknown[] = [];
  for await (const { blobKey } of eachDue((page) => deps.stores.read.files.due(dueMs, page), deps.ending)) {
    await purgeFile(deps, blobKey).catch((error) => failures.push(error));
  }
  return failures;
}

/** Removes bytes of uploads that a process has stored but not recorded. Younger ones may be about to be recorded. */
export async function removeUnknownFiles({ stores, blobs }: Deps, olderThanMs: number): Promise<void> {
  const known = new Set(await stores.read.files.blobKeys());
  for (const { key, ageMs } of await blobs.list(FILES_PREFIX)) {
    if (ageMs >= olderThanMs && !known.has(key)) await blobs.delete(key);
  }
}
