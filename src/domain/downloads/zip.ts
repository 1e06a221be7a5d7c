import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { layOutZip } from "../../kernel/zip.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { ZipEntries, ZipImage } from "./entry-names.ts";
import { pieceBytes, pieceStream } from "./piece-stream.ts";

interface ZipContent extends ZipEntries {
  /** Keeps the ETags of ZIPs apart that hold the same in answer to different requests. */
  variant: string;
}

interface BatchZip {
  /** Known before the first byte. */
  sizeBytes: number;
  /** Changes when the bytes would; without quotes. */
  etag: string;
  /**
   * Makes bytes `start` to `end`, inclusive. Each part is valid until the next one is asked for. Throws
   * `BATCH_IMAGE_RESULT_MISSING` at an image that is missing or damaged, before its end.
   */
  open(range: { start: number; end: number }): AsyncIterable<Buffer>;
}

/**
 * Plans a ZIP of the images of a batch, then the texts. The same content always gives the same bytes. Images are
 * stored, not deflated, because they are compressed already. A range is made without the images before it. Throws
 * `BATCH_IMAGE_RESULT_MISSING` when a file is missing or has another size.
 */
export async function planBatchZip(
  blobs: BlobStore,
  { images, texts, variant }: ZipContent,
): Promise<BatchZip> {
  const sizes = await storedSizes(blobs, images);
  const damaged = images.find(({ output }) => sizes.get(output.blobKey) !== output.sizeBytes);
  if (damaged) {
    const message = `The stored image of item ${damaged.customId} is missing or damaged.`;
    throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING", message);
  }
  const etag = sha256Hex(JSON.stringify([variant, texts])).slice(0, 40);
  const pieces = layOutZip([
    ...images.map(({ entryName, output: { blobKey, sizeBytes, crc32 } }) => ({
      name: entryName,
      content: { blobKey, sizeBytes, crc32, isBase64: false },
    })),
    ...texts.map(({ name, text }) => ({ name, content: text })),
  ]);
  return {
    sizeBytes: pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0),
    etag,
    open: (range) => pieceStream(blobs, pieces, range),
  };
}

/** The sizes by key. One list of a batch costs less than a question for each image when the store is behind a network. */
async function storedSizes(
  blobs: Pick<BlobStore, "list">,
  images: readonly ZipImage[],
): Promise<Map<string, number>> {
  const directories = new Set(images.map(({ output }) => output.blobKey.replace(/[^/]*$/, "")));
  const listed = await Promise.all([...directories].map((directory) => blobs.list(directory)));
  return new Map(listed.flat().map(({ key, sizeBytes }) => [key, sizeBytes]));
}
