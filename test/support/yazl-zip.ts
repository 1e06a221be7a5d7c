import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { ZipFile } from "yazl";
import { readIntact } from "../../src/domain/downloads/piece-stream.ts";
import type { planBatchZip } from "../../src/domain/downloads/zip.ts";
import type { BlobStore } from "../../src/domain/ports/blob-store.ts";

type ZipEntries = Omit<Parameters<typeof planBatchZip>[1], "variant">;

// Noon in local components: the format stores local time, so every time zone writes the same bytes.
const ENTRY_TIME = new Date(1980, 0, 1, 12, 0, 0);
const ENTRY_OPTIONS = { mtime: ENTRY_TIME, forceDosTimestamp: true, compress: false, mode: 0o100644 };

/** A ZIP of images and texts, as yazl writes it. */
export function yazlZip(blobs: Pick<BlobStore, "read">, { images, texts }: ZipEntries): Promise<Buffer> {
  const zip = new ZipFile();
  for (const { output, entryName } of images) {
    const options = { ...ENTRY_OPTIONS, size: output.sizeBytes };
    zip.addReadStreamLazy(entryName, options, (done) => {
      void readIntact(blobs, output).then((bytes) =>
        done(null, Readable.from([bytes], { objectMode: false })),
      );
    });
  }
  return finished(zip, texts);
}

/** An entry inside of yazl, while its bytes are to be written. */
interface OpenEntry {
  state: number;
  crc32: number;
  compressedSize: number;
  getDataDescriptor(): Buffer;
}
const IN_PROGRESS = 2;
const DONE = 3;

/**
 * All that yazl writes except the bytes of the images. It is told that they were written, so they may have any size: it
 * would take a second for each 200 MB.
 */
export function yazlZipWithoutImages({ images, texts }: ZipEntries): Promise<Buffer> {
  const zip = new ZipFile();
  const inside = zip as unknown as { entries: OpenEntry[]; outputStreamCursor: number };
  for (const { output, entryName } of images) {
    zip.addReadStreamLazy(entryName, { ...ENTRY_OPTIONS, size: output.sizeBytes }, () => {
      const entry = inside.entries.find(({ state }) => state === IN_PROGRESS) as OpenEntry;
      entry.crc32 = output.crc32;
      entry.compressedSize = output.sizeBytes;
      const descriptor = entry.getDataDescriptor();
      inside.outputStreamCursor += output.sizeBytes + descriptor.length;
      (zip.outputStream as unknown as NodeJS.WritableStream).write(descriptor);
      entry.state = DONE;
    });
  }
  return finished(zip, texts);
}

function finished(zip: ZipFile, texts: ZipEntries["texts"]): Promise<Buffer> {
  for (const { name, text } of texts) zip.addBuffer(Buffer.from(text), name, ENTRY_OPTIONS);
  zip.end();
  return buffer(zip.outputStream as Readable);
}
