import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS } from "../../contract/image-formats.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { foldFileName, MAX_NAME_BYTES, safeFileName, truncateBytes } from "../../kernel/text.ts";
import { layOutZip } from "../../kernel/zip.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { ItemRecord, OutputRecord } from "../records.ts";
import { pieceBytes, pieceStream } from "./piece-stream.ts";

interface NamedImage {
  customId: string;
  imageIndex: number;
  extension: string;
}

/**
 * The names of images in the ZIP, in the order given: `images/<custom id>.png`, `…_2.png` for the second image of an
 * item. Names that a file system without upper and lower case would take for the same get `~2`, `~3`, …
 */
function assignEntryNames(images: readonly NamedImage[]): string[] {
  const taken = new Set<string>();
  return images.map(({ customId, imageIndex, extension }) => {
    const base = imageIndex === 0 ? customId : `${customId}_${imageIndex + 1}`;
    const safe = safeFileName(base);
    for (let n = 1; ; n++) {
      const suffix = n === 1 ? "" : `~${n}`;
      const name = `${truncateBytes(safe, MAX_NAME_BYTES - suffix.length)}${suffix}.${extension}`;
      const folded = foldFileName(name);
      if (taken.has(folded)) continue;
      taken.add(folded);
      return `images/${name}`;
    }
  });
}

/** An image of the ZIP: what is stored, under the name that it gets. */
export interface ZipImage {
  output: OutputRecord;
  customId: string;
  entryName: string;
}

/** The files of a ZIP, in their order. */
interface ZipEntries {
  images: readonly ZipImage[];
  /** Files behind the images. */
  texts: readonly { name: string; text: string }[];
}

/** The images of a batch with their names; a batch that never reached the naming of results is named here. */
export function nameImages(
  items: readonly Pick<ItemRecord, "id" | "customId">[],
  outputs: readonly OutputRecord[],
): ZipImage[] {
  const customIds = new Map(items.map((item) => [item.id, item.customId]));
  const images = outputs.map((output) => ({ output, customId: customIds.get(output.itemId) ?? "" }));
  const names = assignEntryNames(
    images.map(({ output, customId }) => ({
      customId,
      imageIndex: output.imageIndex,
      extension: IMAGE_EXTENSIONS[output.mimeType],
    })),
  );
  return images.map((image, i) => ({ ...image, entryName: image.output.entryName ?? names[i] ?? "" }));
}

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
