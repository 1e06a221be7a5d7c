import { randomBytes } from "node:crypto";
import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-formats.ts";
import type { Clock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { commitOrUndo } from "../commit-or-undo.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import type { LinkedImageRecord } from "../records.ts";
import { KEPT } from "../retention.ts";

const { prefix: PREFIX, forMs: KEPT_MS } = KEPT.links;

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
  const expiresAtMs = clock.nowMs() + KEPT_MS;
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
