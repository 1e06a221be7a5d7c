import { eachDue } from "../each-due.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { FileRecord } from "../ports/files.ts";
import type { Stores } from "../ports/stores.ts";

/** Finds uploaded files whose bytes are missing or have another size than recorded. Returns a line for each. */
export async function fileProblems(stores: Stores, blobs: BlobStore): Promise<string[]> {
  const problems: string[] = [];
  const files = eachDue((page) => stores.read.files.due(Number.MAX_SAFE_INTEGER, page));
  for await (const file of files) problems.push(...(await problemOf(stores, blobs, file)));
  return problems;
}

async function problemOf(stores: Stores, blobs: BlobStore, file: FileRecord): Promise<string[]> {
  const { id, apiKeyId, blobKey, sizeBytes } = file;
  const size = await blobs.sizeOf(blobKey);
  if (size === sizeBytes) return [];
  // The bytes of a file are removed before its row.
  const now = await stores.read.files.find(apiKeyId, id);
  if (now?.blobKey !== blobKey || now.expiresAtMs !== file.expiresAtMs || file.expiresAtMs === 0) return [];
  return [`file ${id} of key ${apiKeyId}: ${blobKey} is ${size === null ? "missing" : "damaged"}`];
}
