import type { Readable } from "node:stream";
import { type Entry, openPromise, type ZipFile } from "yauzl";
import { ImgbatchError } from "../contract/errors.ts";

/** Bounds for a ZIP that somebody else made. Images hardly compress: what unpacks to far more is an attack. */
const MAX_ENTRIES = 20_000;
const MAX_ENTRY_BYTES = 512 * 1024 * 1024;
const MAX_TOTAL_BYTES = 16 * 1024 * 1024 * 1024;
const MAX_RATIO = 200;
const RATIO_FREE_BYTES = 1024 * 1024;

const SYMLINK = 0o120000;
const FILE_TYPE_MASK = 0o170000;

/** A file in a ZIP whose name and declared sizes were found harmless. */
export interface ZipEntry {
  name: string;
  bytes: number;
  crc32: number;
  /** The unpacked bytes; breaks off when there are more or fewer than declared. */
  read(): Promise<Readable>;
}

export interface ZipReader {
  entries: ZipEntry[];
  close(): void;
}

/**
 * Opens a ZIP and checks its whole table of contents before anything is unpacked. Throws `VERIFY_FAILED` for one that
 * is damaged, or hostile: names that lead elsewhere, links, encryption, the same name twice, too many or too large
 * files. Names that are only one on some file systems are told apart when files are placed.
 * Rule: RUN-18.
 */
export async function openZip(path: string): Promise<ZipReader> {
  let zip: ZipFile;
  try {
    zip = await openPromise(path, { lazyEntries: true, autoClose: false, strictFileNames: true });
  } catch (error) {
    throw unusable(`it cannot be read (${messageOf(error)})`, error);
  }
  // Entries may share their bytes in the file, each of them harmless by itself.
  const mostBytes = Math.min(MAX_TOTAL_BYTES, RATIO_FREE_BYTES + zip.fileSize * MAX_RATIO);
  try {
    const entries: ZipEntry[] = [];
    const names = new Set<string>();
    let total = 0;
    for await (const entry of zip.eachEntry()) {
      if (entry.fileName.endsWith("/")) continue;
      const problem = entryProblem(entry, names);
      if (problem !== null) throw unusable(`${JSON.stringify(entry.fileName)} ${problem}`);
      names.add(entry.fileName);
      total += entry.uncompressedSize;
      if (entries.length >= MAX_ENTRIES || total > mostBytes) throw unusable("it holds too much");
      entries.push(toEntry(zip, entry));
    }
    return { entries, close: () => zip.close() };
  } catch (error) {
    zip.close();
    throw error instanceof ImgbatchError ? error : unusable(messageOf(error), error);
  }
}

function entryProblem(entry: Entry, names: ReadonlySet<string>): string | null {
  const { fileName, uncompressedSize, compressedSize } = entry;
  const parts = fileName.split("/");
  // The reader refuses absolute names, drive letters, backslashes and `..`; the rest is refused here.
  if (parts.some((part) => part === "" || part === "." || part === "..")) return "is an unsafe name";
  if (/\p{Cc}/u.test(fileName)) return "is an unsafe name";
  if (parts.some((part) => Buffer.byteLength(part) > 255)) return "is too long a name";
  if (((entry.externalFileAttributes >>> 16) & FILE_TYPE_MASK) === SYMLINK) return "is a link";
  if (entry.isEncrypted()) return "is encrypted";
  if (names.has(fileName)) return "is there twice";
  if (uncompressedSize > MAX_ENTRY_BYTES) return "is too large";
  if (uncompressedSize > RATIO_FREE_BYTES + compressedSize * MAX_RATIO) return "unpacks to suspiciously much";
  return null;
}

function toEntry(zip: ZipFile, entry: Entry): ZipEntry {
  return {
    name: entry.fileName,
    bytes: entry.uncompressedSize,
    crc32: entry.crc32,
    read: async () => {
      try {
        return await zip.openReadStreamPromise(entry);
      } catch (error) {
        throw unusable(`${JSON.stringify(entry.fileName)} cannot be read (${messageOf(error)})`, error);
      }
    },
  };
}

function unusable(why: string, cause?: unknown): ImgbatchError {
  return new ImgbatchError("VERIFY_FAILED", `The downloaded ZIP cannot be used: ${why}.`, { cause });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
