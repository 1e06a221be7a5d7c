import { crc32 } from "node:zlib";

/** A plain field with this value means that the real value is in the ZIP64 field (section 4.4.1.4). */
const IN_ZIP64 = 0xffffffff;
const ENTRIES_IN_ZIP64 = 0xffff;

/** UTF-8 names (APPNOTE, section 4.4.4). */
const UTF8_NAME = 0x0800;
/** Sizes and CRC-32 stand behind the bytes. */
const HAS_DESCRIPTOR = 0x0008;
const VERSION_NEEDED = 20;
const VERSION_OF_ZIP64 = 45;
/** Unix, version 6.3 of the format. */
const VERSION_MADE_BY = (3 << 8) | 63;
/** Noon of 1 January 1980, in the units of DOS. */
const DOS_TIME = 12 << 11;
const DOS_DATE = (1 << 5) | 1;
/** A regular file, `rw-r--r--`. */
const ATTRIBUTES = 0o100644 * 0x10000;

/** Bytes that are written elsewhere, for instance a stored file. */
interface ZipBody {
  sizeBytes: number;
  crc32: number;
}

interface Entry {
  name: Buffer;
  flags: number;
  crc32: number;
  sizeBytes: number;
  offset: number;
}

/** Whether the plain fields cannot hold the facts of an entry. */
const needsZip64 = ({ sizeBytes, offset }: Entry) => sizeBytes >= IN_ZIP64 || offset >= IN_ZIP64;

/**
 * Returns a ZIP of these files as a list of its parts: each body as it was given, and the bytes around the bodies. The
 * position of every byte is known because the CRC-32 of each body is known. Nothing is deflated. The bytes are those
 * that yazl writes for the same entries. The sections in the comments are those of PKWARE's APPNOTE.TXT 6.3.10.
 */
export function layOutZip<T extends ZipBody>(
  files: readonly { name: string; content: string | T }[],
): (Buffer | T)[] {
  const entries: Entry[] = [];
  const parts: (Buffer | T)[] = [];
  /** Bytes between two bodies, which become one part. */
  let between: Buffer[] = [];
  let position = 0;
  const add = (...pieces: Buffer[]) => {
    between.push(...pieces);
    for (const piece of pieces) position += piece.length;
  };
  for (const { name: text, content } of files) {
    const name = Buffer.from(text);
    if (typeof content === "string") {
      const bytes = Buffer.from(content);
      const facts = { crc32: crc32(bytes), sizeBytes: bytes.length };
      const entry = { name, flags: UTF8_NAME, ...facts, offset: position };
      entries.push(entry);
      add(localHeader(entry), bytes);
    } else {
      const flags = UTF8_NAME | HAS_DESCRIPTOR;
      const entry = { name, flags, crc32: content.crc32, sizeBytes: content.sizeBytes, offset: position };
      entries.push(entry);
      add(localHeader({ ...entry, crc32: 0, sizeBytes: 0 }));
      parts.push(Buffer.concat(between), content);
      between = [];
      position += content.sizeBytes;
      add(descriptor(entry));
    }
  }
  const start = position;
  for (const entry of entries) add(centralHeader(entry));
  add(endOfDirectory(entries.length, start, position - start));
  return [...parts, Buffer.concat(between)];
}

/** Section 4.3.7. */
function localHeader(entry: Omit<Entry, "offset">): Buffer {
  return Buffer.concat([u32(0x04034b50), u16(VERSION_NEEDED), factsOf(entry), u16(0), entry.name]);
}

/** Section 4.3.9. */
function descriptor(entry: Entry): Buffer {
  const { crc32, sizeBytes } = entry;
  const size = needsZip64(entry) ? u64 : u32;
  return Buffer.concat([u32(0x08074b50, crc32), size(sizeBytes, sizeBytes)]);
}

/** Section 4.3.12. The extra field has the facts that need 64 bits: section 4.5.3. */
function centralHeader(entry: Entry): Buffer {
  const { name, sizeBytes, offset } = entry;
  const isZip64 = needsZip64(entry);
  const shown = isZip64 ? { ...entry, sizeBytes: IN_ZIP64, offset: IN_ZIP64 } : entry;
  const values = u64(sizeBytes, sizeBytes, offset);
  const extra = isZip64 ? Buffer.concat([u16(1, values.length), values]) : Buffer.alloc(0);
  const versions = u16(VERSION_MADE_BY, isZip64 ? VERSION_OF_ZIP64 : VERSION_NEEDED);
  // No comment, the first disk, no text.
  const rest = [u16(extra.length, 0, 0, 0), u32(ATTRIBUTES, shown.offset)];
  return Buffer.concat([u32(0x02014b50), versions, factsOf(shown), ...rest, name, extra]);
}

/** The fields that both headers of an entry have, from the flags to the length of the name. The method is 0: stored. */
function factsOf({ flags, crc32, sizeBytes, name }: Omit<Entry, "offset">): Buffer {
  return Buffer.concat([
    u16(flags, 0, DOS_TIME, DOS_DATE),
    u32(crc32, sizeBytes, sizeBytes),
    u16(name.length),
  ]);
}

/** The end of the directory (section 4.3.16), after the parts of ZIP64 if it needs them. */
function endOfDirectory(entries: number, start: number, sizeBytes: number): Buffer {
  const shown = Math.min(entries, ENTRIES_IN_ZIP64);
  const place = u32(Math.min(sizeBytes, IN_ZIP64), Math.min(start, IN_ZIP64));
  const end = Buffer.concat([u32(0x06054b50), u16(0, 0, shown, shown), place, u16(0)]);
  const isZip64 = entries >= ENTRIES_IN_ZIP64 || sizeBytes >= IN_ZIP64 || start >= IN_ZIP64;
  return isZip64 ? Buffer.concat([zip64EndOfDirectory(entries, start, sizeBytes), end]) : end;
}

/** The record and its locator: sections 4.3.14 and 4.3.15. The record has 44 bytes behind its size. */
function zip64EndOfDirectory(entries: number, start: number, sizeBytes: number): Buffer {
  const record = [u32(0x06064b50), u64(44), u16(VERSION_MADE_BY, VERSION_OF_ZIP64), u32(0, 0)];
  const locator = [u32(0x07064b50, 0), u64(start + sizeBytes), u32(1)];
  return Buffer.concat([...record, u64(entries, entries, sizeBytes, start), ...locator]);
}

/** Returns a function that returns the bytes of numbers of this size, the lowest byte of each first. */
const littleEndian =
  (size: 2 | 4 | 8) =>
  (...values: number[]) => {
    const bytes = Buffer.alloc(size * values.length);
    for (const [i, value] of values.entries()) {
      if (size === 8) bytes.writeBigUInt64LE(BigInt(value), i * size);
      else bytes.writeUIntLE(value, i * size, size);
    }
    return bytes;
  };

const [u16, u32, u64] = [littleEndian(2), littleEndian(4), littleEndian(8)];
