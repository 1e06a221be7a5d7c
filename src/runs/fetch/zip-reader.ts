import { addAbortSignal, type Readable } from "node:stream";
import { type Entry, openPromise, type ZipFile } from "yauzl";
import { ImgbatchError } from "../../contract/errors.ts";

/** Bounds for a ZIP from elsewhere. Images hardly compress: a ZIP that unpacks to far more is an attack. */
const MAX_ENTRIES = 20_000;
const MAX_NAME_BYTES = 4096;
const MAX_ENTRY_BYTES = 512 * 1024 * 1024;
const MAX_TOTAL_BYTES = 16 * 1024 * 1024 * 1024;
const MAX_RATIO = 200;
const RATIO_FREE_BYTES = 1024 * 1024;

const SYMLINK = 0o120000;
const FILE_TYPE_MASK = 0o170000;

/** A file in a ZIP. Its name and its declared sizes were checked. */
export interface ZipEntry {
  name: string;
  bytes: number;
  crc32: number;
  /** Returns the unpacked bytes. The stream fails when there are more or fewer than declared, and when the signal aborts. */
  read(): Promise<Readable>;
}

export interface ZipReader {
  entries: ZipEntry[];
  close(): void;
}

/**
 * Opens a ZIP and checks its whole table of contents before anything is unpacked. Throws `VERIFY_FAILED` for a damaged
 * ZIP and for a hostile one: names that lead elsewhere, links, encryption, the same name twice, too many or too large
 * files. Names that are equal only on some file systems are allowed here; files get distinct names when written. Throws
 * the signal's reason after an abort.
 */
export async function openZip(path: string, signal?: AbortSignal): Promise<ZipReader> {
  let zip: ZipFile;
  try {
    zip = await openPromise(path, { lazyEntries: true, autoClose: false, strictFileNames: true });
  } catch (error) {
    throw unusable(`it cannot be read (${messageOf(error)})`, error);
  }
  // Entries may share bytes of the file: each looks harmless, all together are not.
  const mostBytes = Math.min(MAX_TOTAL_BYTES, RATIO_FREE_BYTES + zip.fileSize * MAX_RATIO);
  try {
    const entries: ZipEntry[] = [];
    const names = new Set<string>();
    let count = 0;
    let total = 0;
    for await (const entry of zip.eachEntry()) {
      signal?.throwIfAborted();
      // Folders count too: a ZIP can hold very many of them.
      if (++count > MAX_ENTRIES) throw unusable("it holds too much");
      if (entry.fileName.endsWith("/")) continue;
      const problem = entryProblem(entry, names);
      if (problem !== null) throw unusable(`${JSON.stringify(entry.fileName)} ${problem}`);
      names.add(entry.fileName);
      total += entry.uncompressedSize;
      if (total > mostBytes) throw unusable("it holds too much");
      entries.push(toEntry(zip, entry, signal));
    }
    return { entries, close: () => zip.close() };
  } catch (error) {
    zip.close();
    signal?.throwIfAborted();
    throw error instanceof ImgbatchError ? error : unusable(messageOf(error), error);
  }
}

function entryProblem(entry: Entry, names: ReadonlySet<string>): string | null {
  const { fileName, uncompressedSize, compressedSize } = entry;
  if (Buffer.byteLength(fileName) > MAX_NAME_BYTES) return "is too long a name";
  const parts = fileName.split("/");
  // The reader refuses absolute names, drive letters, backslashes and `..`; the rest is refused here.
  if (parts.some((part) => part === "" || part === "." || part === "..")) return "is an unsafe name";
  if (/\p{Cc}/u.test(fileName)) return "is an unsafe name";
  if (parts.some((part) => Buffer.byteLength(part) > 255)) return "is too long a name";
  if (((entry.externalFileAttributes >>> 16) & FILE_TYPE_MASK) === SYMLINK) return "is a link";
  if (entry.isEncrypted()) return "is encrypted";
  if (names.has(fileName)) return "appears twice";
  if (uncompressedSize > MAX_ENTRY_BYTES) return "is too large";
  if (uncompressedSize > RATIO_FREE_BYTES + compressedSize * MAX_RATIO) return "unpacks to suspiciously much";
  return null;
}

function toEntry(zip: ZipFile, entry: Entry, signal: AbortSignal | undefined): ZipEntry {
  return {
    name: entry.fileName,
    bytes: entry.uncompressedSize,
    crc32: entry.crc32,
    read: async () => {
      try {
        const stream = await zip.openReadStreamPromise(entry);
        return signal === undefined ? stream : addAbortSignal(signal, stream);
      } catch (error) {
        throw unusable(`${JSON.stringify(entry.fileName)} cannot be read (${messageOf(error)})`, error);
      }
    },
  };
}

/** Reads the first bytes of an entry, or all of a shorter one. Throws `VERIFY_FAILED` for a damaged one. */
export async function readStart(entry: ZipEntry, bytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of await entry.read()) {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= bytes) break;
    }
  } catch (cause) {
    throw new ImgbatchError("VERIFY_FAILED", `${entry.name} is damaged: ${messageOf(cause)}`, { cause });
  }
  return Buffer.concat(chunks);
}

function unusable(why: string, cause?: unknown): ImgbatchError {
  return new ImgbatchError("VERIFY_FAILED", `The downloaded ZIP cannot be used: ${why}.`, { cause });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
