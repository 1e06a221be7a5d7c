import { Readable } from "node:stream";
import { ZipFile } from "yazl";
import type { BlobStore } from "../ports/blob-store.ts";
import type { OutputRecord } from "../records.ts";
import type { ZipEntries } from "./entry-names.ts";
import { readIntact } from "./read-intact.ts";

// Noon in local components: the format stores local time, so every time zone writes the same bytes.
const ENTRY_TIME = new Date(1980, 0, 1, 12, 0, 0);
const ENTRY_OPTIONS = { mtime: ENTRY_TIME, forceDosTimestamp: true, compress: false, mode: 0o100644 };

/**
 * A ZIP of any size, written from its beginning. One image is in memory at a time, compared with its hash before any of its
 * bytes leave. Errors destroy the stream before its end.
 */
export function openYazlZip(blobs: Pick<BlobStore, "read">, entries: ZipEntries): Readable {
  const zip = newZip(entries, (output) => {
    const image = Readable.from(readLazily(blobs, output), { objectMode: false });
    return image.on("error", (error) => stream.destroy(error));
  });
  const stream = zip.outputStream as Readable;
  zip.on("error", (error) => stream.destroy(error as Error));
  zip.end();
  return stream;
}

/** The size of that ZIP. No image is read. */
export function yazlZipBytes(entries: ZipEntries): Promise<number> {
  return new Promise((resolve) => {
    const zip = newZip(entries, () => new Readable({ read() {} }));
    zip.end({ forceZip64Format: false, comment: "" }, (...sizes: number[]) => resolve(sizes[0] ?? -1));
  });
}

function newZip({ images, texts }: ZipEntries, open: (output: OutputRecord) => Readable): ZipFile {
  const zip = new ZipFile();
  for (const { output, entryName } of images) {
    const options = { ...ENTRY_OPTIONS, size: output.sizeBytes };
    zip.addReadStreamLazy(entryName, options, (done) => done(null, open(output)));
  }
  for (const { name, text } of texts) zip.addBuffer(Buffer.from(text), name, ENTRY_OPTIONS);
  return zip;
}

async function* readLazily(blobs: Pick<BlobStore, "read">, output: OutputRecord): AsyncGenerator<Buffer> {
  yield await readIntact(blobs, output);
}
