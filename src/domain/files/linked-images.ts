import { randomBytes } from "node:crypto";
import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { commitOrUndo } from "../commit-or-undo.ts";
import { eachDue, type SweepDeps } from "../each-due.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import type { LinkedImageRecord } from "../records.ts";

const PREFIX = "links/";
export const LINK_RETENTION_MS = FIXED_LIMITS.imageLinkHours * 3_600_000;

interface Deps {
  stores: Stores;
  blobs: BlobStore;
}

/**
 * Stores an image that can be fetched by its name for an hour. Returns the name: 128 random bits, and the ending of
 * its type. Anyone with the name can see the image, so it must not be logged. Throws `StorageUnavailable`.
 */
export async function linkImage(
  { stores, blobs, clock }: Deps & { clock: Clock },
  { bytes, mimeType }: { bytes: Buffer; mimeType: ImageMimeType },
): Promise<string> {
  const name = `${randomBytes(16).toString("hex")}.${IMAGE_EXTENSIONS[mimeType]}`;
  const id = sha256Hex(name);
  await blobs.put(PREFIX + id, bytes);
  const expiresAtMs = clock.nowMs() + LINK_RETENTION_MS;
  const image = { id, mimeType, sizeBytes: bytes.length, expiresAtMs };
  await commitOrUndo(
    () => stores.write((tx) => tx.linkedImages.insert(image)),
    () => blobs.delete(PREFIX + id),
  );
  return name;
}

/** The image of a name, with the key of its blob; null when there is none, or it has expired. */
export async function findLinkedImage(
  { stores, clock }: { stores: Stores; clock: Clock },
  name: string,
): Promise<(LinkedImageRecord & { blobKey: string }) | null> {
  const image = await stores.read.linkedImages.find(sha256Hex(name));
  return image !== null && image.expiresAtMs > clock.nowMs()
    ? { ...image, blobKey: PREFIX + image.id }
    : null;
}

/** Removes the images that expire by `dueMs`. Returns the errors; what they left, the next sweep removes. */
export async function sweepLinkedImages(
  { stores, blobs, ending }: SweepDeps,
  dueMs: number,
): Promise<unknown[]> {
  const failures: unknown[] = [];
  for await (const { id } of eachDue((page) => stores.read.linkedImages.due(dueMs, page), ending)) {
    try {
      await blobs.delete(PREFIX + id);
      await stores.write((tx) => tx.linkedImages.remove(id));
    } catch (error) {
      failures.push(error);
    }
  }
  return failures;
}

/** Finds images that can be fetched, and are missing or have another size than recorded. Returns a line for each. */
export async function linkProblems({ stores, blobs }: Deps): Promise<string[]> {
  const problems: string[] = [];
  for await (const { id, sizeBytes } of eachDue((page) =>
    stores.read.linkedImages.due(Number.MAX_SAFE_INTEGER, page),
  )) {
    const size = await blobs.sizeOf(PREFIX + id);
    // The bytes of an image are removed before its row.
    if (size === sizeBytes || (await stores.read.linkedImages.find(id)) === null) continue;
    problems.push(`an image with a link: ${PREFIX}${id} is ${size === null ? "missing" : "damaged"}`);
  }
  return problems;
}

/** Removes images that a process has stored but not recorded. Younger ones may be about to be recorded. */
export async function removeUnlinkedImages({ stores, blobs }: Deps, olderThanMs: number): Promise<void> {
  for (const { key, ageMs } of await blobs.list(PREFIX)) {
    if (ageMs < olderThanMs) continue;
    if ((await stores.read.linkedImages.find(key.slice(PREFIX.length))) === null) await blobs.delete(key);
  }
}
