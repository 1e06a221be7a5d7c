import { buffer } from "node:stream/consumers";
import { promisify } from "node:util";
import { type Entry, fromBuffer, type ZipFile } from "yauzl";

/** The entries of a ZIP by name, in their order, read by another library than the one that wrote it. */
export async function readZip(bytes: Buffer): Promise<Map<string, Buffer>> {
  const open = promisify<Buffer, { lazyEntries: boolean }, ZipFile>(fromBuffer);
  const zip = await open(bytes, { lazyEntries: true });
  const entries = new Map<string, Buffer>();
  return new Promise((resolve, reject) => {
    zip.on("error", reject);
    zip.on("end", () => resolve(entries));
    zip.on("entry", (entry: Entry) => {
      zip.openReadStream(entry, (error, stream) => {
        if (error) return reject(error);
        buffer(stream).then((data) => {
          entries.set(entry.fileName, data);
          zip.readEntry();
        }, reject);
      });
    });
    zip.readEntry();
  });
}
