import { crc32 } from "node:zlib";
import type { ZipEntries } from "./entry-names.ts";
import type { Piece } from "./piece-stream.ts";

/** Above these, the format needs the fields of ZIP64. */
const MAX_OFFSET = 0xfffffffe;
const MAX_ENTRIES = 0xfffe;

/** UTF-8 names (APPNOTE, section 4.4.4). */
const UTF8_NAME = 0x0800;
/** Sizes and CRC-32 stand behind the bytes. */
const HAS_DESCRIPTOR = 0x0008;
const VERSION_NEEDED = 20;
/** Unix, version 6.3 of the format. */
const VERSION_MADE_BY = (3 << 8) | 63;
/** Noon of 1 January 1980, in the units of DOS. */
const DOS_TIME = 12 << 11;
const DOS_DATE = (1 << 5) | 1;
/** A regular file, `rw-r--r--`. */
const ATTRIBUTES = 0o100644 * 0x10000;

interface Entry {
  name: Buffer;
  flags: number;
  crc32: number;
  sizeBytes: number;
  offset: number;
}

/**
 * The parts of a ZIP, whose every byte has a known place because the CRC-32 of each image is known. The bytes are those
 * that yazl writes for the same entries. Null when the ZIP needs ZIP64: above 4 GiB or 65,534 entries.
 *
 * The sections in the comments are those of PKWARE's APPNOTE.TXT 6.3.10.
 */
export function layOutZip({ images, texts }: ZipEntries): Piece[] | null {
  const entries: Entry[] = [];
  const pieces: Piece[] = [];
  /** Bytes between two images, which become one piece. */
  let between: Buffer[] = [];
  let position = 0;
  const add = (...parts: Buffer[]) => {
    between.push(...parts);
    for (const part of parts) position += part.length;
  };
  for (const { entryName, output } of images) {
    const { blobKey, sizeBytes } = output;
    const name = Buffer.from(entryName);
    const flags = UTF8_NAME | HAS_DESCRIPTOR;
    const entry = { name, flags, crc32: output.crc32, sizeBytes, offset: position };
    entries.push(entry);
    add(localHeader({ ...entry, crc32: 0, sizeBytes: 0 }));
    pieces.push(Buffer.concat(between), { blobKey, sizeBytes, crc32: output.crc32, isBase64: false });
    between = [];
    position += sizeBytes;
    add(descriptor(entry));
  }
  for (const { name, text } of texts) {
    const bytes = Buffer.from(text);
    const facts = { crc32: crc32(bytes), sizeBytes: bytes.length };
    const entry = { name: Buffer.from(name), flags: UTF8_NAME, ...facts, offset: position };
    entries.push(entry);
    add(localHeader(entry), bytes);
  }
  if (position > MAX_OFFSET || entries.length > MAX_ENTRIES) return null;
  const start = position;
  for (const entry of entries) add(centralHeader(entry));
  add(endOfDirectory(entries.length, start, position - start));
  return [...pieces, Buffer.concat(between)];
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
function descriptor({ crc32, sizeBytes }: Entry): Buffer {
  const fields = Buffer.alloc(16);
  fields.writeUInt32LE(0x08074b50, 0);
  fields.writeUInt32LE(crc32, 4);
  fields.writeUInt32LE(sizeBytes, 8);
  fields.writeUInt32LE(sizeBytes, 12);
  return fields;
}

/** Section 4.3.12. */
function centralHeader(entry: Entry): Buffer {
  const fields = Buffer.alloc(46);
  fields.writeUInt32LE(0x02014b50, 0);
  fields.writeUInt16LE(VERSION_MADE_BY, 4);
  fields.writeUInt16LE(VERSION_NEEDED, 6);
  writeFacts(fields, 8, entry);
  fields.writeUInt32LE(ATTRIBUTES, 38);
  fields.writeUInt32LE(entry.offset, 42);
  return Buffer.concat([fields, entry.name]);
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

/** Section 4.3.16. */
function endOfDirectory(entries: number, start: number, sizeBytes: number): Buffer {
  const fields = Buffer.alloc(22);
  fields.writeUInt32LE(0x06054b50, 0);
  fields.writeUInt16LE(entries, 8);
  fields.writeUInt16LE(entries, 10);
  fields.writeUInt32LE(sizeBytes, 12);
  fields.writeUInt32LE(start, 16);
  return fields;
}
