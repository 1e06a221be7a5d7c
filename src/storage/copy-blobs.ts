import { createHash } from "node:crypto";
import PQueue from "p-queue";
import { type BlobStore, type ListedBlob, StorageUnavailable } from "../domain/ports/blob-store.ts";

/** Small pictures are made again when they are asked for; drafts have no key. */
const NOT_MOVED = /^(thumbnails|drafts)\//;

const AT_ONCE = 4;

export interface MovedBlobs {
  files: number;
  bytes: number;
  /** Those that an earlier move had copied already. */
  known: number;
}

/**
 * Copies all blobs, and reads each copy back: its hash must be that of the original. A blob that was copied earlier
 * is compared, not copied again. `onProgress` is called after each one. Rejects at the first failure.
 */
export async function copyBlobs(
  from: BlobStore,
  to: BlobStore,
  onProgress: (done: number, files: number) => void,
): Promise<MovedBlobs> {
  const blobs = (await from.list("")).filter(({ key }) => !NOT_MOVED.test(key));
  const there = new Map((await to.list("")).map(({ key, sizeBytes }) => [key, sizeBytes]));
  const moved: MovedBlobs = { files: 0, bytes: 0, known: 0 };
  const queue = new PQueue({ concurrency: AT_ONCE });
  const move = async ({ key, sizeBytes }: ListedBlob) => {
    const sha256 = await hashOf(from, key);
    const isKnown = there.get(key) === sizeBytes && (await hashOf(to, key)) === sha256;
    if (!isKnown) {
      await copy(from, to, key);
      if ((await hashOf(to, key)) !== sha256) throw damaged(key);
    }
    moved.files++;
    moved.bytes += sizeBytes;
    if (isKnown) moved.known++;
    onProgress(moved.files, blobs.length);
  };
  try {
    await queue.addAll(blobs.map((blob) => () => move(blob)));
  } catch (error) {
    queue.clear();
    await queue.onIdle();
    throw error;
  }
  return moved;
}

async function copy(from: BlobStore, to: BlobStore, key: string): Promise<void> {
  const draft = to.draft();
  try {
    // Without any write there is no blob, and the blob may be empty.
    await draft.write(new Uint8Array());
    for await (const chunk of (await from.open(key)) ?? []) await draft.write(chunk);
    await draft.finish();
    await draft.keepAs(key);
  } finally {
    await draft.discard();
  }
}

/** Null when there is no such blob. */
async function hashOf(blobs: BlobStore, key: string): Promise<string | null> {
  const bytes = await blobs.open(key);
  if (bytes === null) return null;
  const hash = createHash("sha256");
  for await (const chunk of bytes) hash.update(chunk);
  return hash.digest("hex");
}

function damaged(key: string): StorageUnavailable {
  const cause = new Error(`the copy of ${key} differs from the original`);
  return new StorageUnavailable("broken", `The copy of ${key} differs from the original.`, cause);
}
