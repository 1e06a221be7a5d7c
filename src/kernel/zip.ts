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
function localHeader({ name, flags, crc32, sizeBytes }: Entry): Buffer {
  const fields = Buffer.alloc(30);
  fields.writeUInt32LE(0x04034b50, 0);
  fields.writeUInt16LE(VERSION_NEEDED, 4);
  writeFacts(fields, 6, { name, flags, crc32, sizeBytes });
  return Buffer.concat([fields, name]);
}

/** Section 4.3.9. */
function descriptor(entry: Entry): Buffer {
  const { crc32, sizeBytes } = entry;
  const head = Buffer.alloc(8);
  head.writeUInt32LE(0x08074b50, 0);
  head.writeUInt32LE(crc32, 4);
  if (needsZip64(entry)) return Buffer.concat([head, uint64s(sizeBytes, sizeBytes)]);
  const sizes = Buffer.alloc(8);
  sizes.writeUInt32LE(sizeBytes, 0);
  sizes.writeUInt32LE(sizeBytes, 4);
  return Buffer.concat([head, sizes]);
}

/** Section 4.3.12. */
function centralHeader(entry: Entry): Buffer {
  const isZip64 = needsZip64(entry);
  const shown = isZip64 ? { ...entry, sizeBytes: IN_ZIP64, offset: IN_ZIP64 } : entry;
  const extra = isZip64 ? zip64Extra(entry) : Buffer.alloc(0);
  const fields = Buffer.alloc(46);
  fields.writeUInt32LE(0x02014b50, 0);
  fields.writeUInt16LE(VERSION_MADE_BY, 4);
  fields.writeUInt16LE(isZip64 ? VERSION_OF_ZIP64 : VERSION_NEEDED, 6);
  writeFacts(fields, 8, shown);
  fields.writeUInt16LE(extra.length, 30);
  fields.writeUInt32LE(ATTRIBUTES, 38);
  fields.writeUInt32LE(shown.offset, 42);
  return Buffer.concat([fields, entry.name, extra]);
}

/** The field for an entry whose facts need 64 bits: section 4.5.3. */
function zip64Extra({ sizeBytes, offset }: Entry): Buffer {
  const values = uint64s(sizeBytes, sizeBytes, offset);
  const head = Buffer.alloc(4);
  head.writeUInt16LE(1, 0);
  head.writeUInt16LE(values.length, 2);
  return Buffer.concat([head, values]);
}

/** The fields that both headers of an entry have, from the flags to the length of the name. */
function writeFacts(fields: Buffer, at: number, entry: Omit<Entry, "offset">): void {
  fields.writeUInt16LE(entry.flags, at);
  // The method at `at + 2` is 0: stored.
  fields.writeUInt16LE(DOS_TIME, at + 4);
  fields.writeUInt16LE(DOS_DATE, at + 6);
  fields.writeUInt32LE(entry.crc32, at + 8);
  fields.writeUInt32LE(entry.sizeBytes, at + 12);
  fields.writeUInt32LE(entry.sizeBytes, at + 16);
  fields.writeUInt16LE(entry.name.length, at + 20);
}

/** The end of the directory (section 4.3.16), after the parts of ZIP64 if it needs them. */
function endOfDirectory(entries: number, start: number, sizeBytes: number): Buffer {
  const fields = Buffer.alloc(22);
  fields.writeUInt32LE(0x06054b50, 0);
  const shownEntries = Math.min(entries, ENTRIES_IN_ZIP64);
  fields.writeUInt16LE(shownEntries, 8);
  fields.writeUInt16LE(shownEntries, 10);
  fields.writeUInt32LE(Math.min(sizeBytes, IN_ZIP64), 12);
  fields.writeUInt32LE(Math.min(start, IN_ZIP64), 16);
  const isZip64 = entries >= ENTRIES_IN_ZIP64 || sizeBytes >= IN_ZIP64 || start >= IN_ZIP64;
  return isZip64 ? Buffer.concat([zip64EndOfDirectory(entries, start, sizeBytes), fields]) : fields;
}

/** The record and its locator: sections 4.3.14 and 4.3.15. */
function zip64EndOfDirectory(entries: number, start: number, sizeBytes: number): Buffer {
  const record = Buffer.alloc(24);
  record.writeUInt32LE(0x06064b50, 0);
  // The size of the record behind this field.
  record.writeUInt32LE(44, 4);
  record.writeUInt16LE(VERSION_MADE_BY, 12);
  record.writeUInt16LE(VERSION_OF_ZIP64, 14);
  const locator = Buffer.alloc(8);
  locator.writeUInt32LE(0x07064b50, 0);
  const disks = Buffer.alloc(4);
  disks.writeUInt32LE(1, 0);
  const values = uint64s(entries, entries, sizeBytes, start);
  return Buffer.concat([record, values, locator, uint64s(start + sizeBytes), disks]);
}

function uint64s(...values: number[]): Buffer {
  const bytes = Buffer.alloc(8 * values.length);
  for (const [at, value] of values.entries()) bytes.writeBigUInt64LE(BigInt(value), 8 * at);
  return bytes;
}
