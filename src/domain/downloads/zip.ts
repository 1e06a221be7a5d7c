import { Readable } from "node:stream";
import { ZipFile } from "yazl";
import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { OutputRecord } from "../records.ts";
import type { ZipImage } from "./entry-names.ts";
import { readIntact } from "./read-intact.ts";

export interface ZipContent {
  images: readonly ZipImage[];
  /** Files behind the images. */
  texts: readonly { name: string; text: string }[];
  /** Keeps the ETags of ZIPs apart that hold the same in answer to different requests. */
  variant: string;
}

export interface BatchZip {
  /** Known before the first byte. */
  sizeBytes: number;
  /** Changes when the bytes would; without quotes. */
  etag: string;
  /** Makes the bytes. One image is in memory at a time. Errors destroy the stream before its end. */
  open(): Readable;
}

// Noon in local components: the format stores local time, so every time zone writes the same bytes.
const ENTRY_TIME = new Date(1980, 0, 1, 12, 0, 0);
const ENTRY_OPTIONS = { mtime: ENTRY_TIME, forceDosTimestamp: true, compress: false, mode: 0o100644 };

/**
 * Plans a ZIP of the images of a batch, then the texts. The same content always gives the same bytes. Images are
 * stored, not deflated, because they are compressed already. Each image is compared with its hash before any of its
 * bytes leave. Throws `BATCH_IMAGE_RESULT_MISSING` when a file is missing or has another size.
 */
export async function planBatchZip(
  blobs: BlobStore,
  { images, texts, variant }: ZipContent,
): Promise<BatchZip> {
  for (const { output, customId } of images) {
    const size = await blobs.sizeOf(output.blobKey);
    if (size !== output.sizeBytes) {
      const message = `The stored image of item ${customId} is missing or damaged.`;
      throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING", message);
    }
  }
  const build = (open: (output: OutputRecord) => Readable) => {
    const zip = new ZipFile();
    for (const { output, entryName } of images) {
      const options = { ...ENTRY_OPTIONS, size: output.sizeBytes };
      zip.addReadStreamLazy(entryName, options, (done) => done(null, open(output)));
    }
    for (const { name, text } of texts) zip.addBuffer(Buffer.from(text), name, ENTRY_OPTIONS);
    return zip;
  };
  return {
    sizeBytes: await totalSize(build),
    etag: sha256Hex(JSON.stringify([variant, texts])).slice(0, 40),
    open: () => {
      const zip = build((output) => {
        const image = Readable.from(readLazily(blobs, output), { objectMode: false });
        return image.on("error", (error) => stream.destroy(error));
      });
      const stream = zip.outputStream as Readable;
      zip.on("error", (error) => stream.destroy(error as Error));
      zip.end();
      return stream;
    },
  };
}

/** The size that the parts add up to, asked of the same writer without reading any image. */
function totalSize(build: (open: () => Readable) => ZipFile): Promise<number> {
  return new Promise((resolve) => {
    const zip = build(() => new Readable({ read() {} }));
    zip.end({ forceZip64Format: false, comment: "" }, (...sizes: number[]) => resolve(sizes[0] ?? -1));
  });
}

async function* readLazily(blobs: BlobStore, output: OutputRecord): AsyncGenerator<Buffer> {
  yield await readIntact(blobs, output);
}
