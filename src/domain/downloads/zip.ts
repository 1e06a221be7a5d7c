import { Readable } from "node:stream";
import { ZipFile } from "yazl";
import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { BatchRecord, ItemRecord, OutputRecord } from "../records.ts";
import { buildErrors, buildManifest, nameImages } from "./manifest.ts";
import { readIntact } from "./read-intact.ts";

/** Which items a ZIP is about: `success` has the images, `failed` only the errors. `all` has both. */
export type ZipFilter = "success" | "failed" | "all";

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
 * The ZIP of a batch: images, then `manifest.json` and `errors.json`. The same batch always gives the same bytes.
 * Images are stored, not deflated: they are compressed already. Each image is compared with its hash before any of
 * its bytes leave, and all files are looked up before this resolves: one that is gone is `BATCH_IMAGE_RESULT_MISSING`.
 */
export async function planBatchZip(
  blobs: BlobStore,
  batch: BatchRecord,
  content: { items: readonly ItemRecord[]; outputs: readonly OutputRecord[]; filter: ZipFilter },
): Promise<BatchZip> {
  const images = content.filter === "failed" ? [] : nameImages(content.items, content.outputs);
  for (const { output, customId } of images) {
    const size = await blobs.sizeOf(output.blobKey);
    if (size !== output.sizeBytes) {
      const message = `The stored image of item ${customId} is missing or damaged.`;
      throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING", message);
    }
  }
  const texts = [
    { name: "manifest.json", text: toJson(buildManifest(batch, images)) },
    { name: "errors.json", text: toJson(buildErrors(content.items)) },
  ];
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
    etag: sha256Hex(JSON.stringify([content.filter, texts])).slice(0, 40),
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

function toJson(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
