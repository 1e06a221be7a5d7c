/** The texts of an EXIF block that describe how a picture was made. */
export interface ExifTexts {
  software: string;
  /** IFD0 ImageDescription. */
  description: string;
  /** UserComment, written as UNICODE. */
  comment: string;
}

const ASCII = 2;
const LONG = 4;
const UNDEFINED = 7;
const HEADER_BYTES = 8;

interface Entry {
  tag: number;
  type: number;
  data: Buffer;
}

/**
 * A big-endian TIFF block as EXIF holds it, without the "Exif" prefix of JPEG. Written here because libvips writes
 * a UserComment as ASCII only and so loses every other letter.
 */
export function exifBlock(texts: ExifTexts): Buffer {
  const main: Entry[] = [
    { tag: 0x010e, type: ASCII, data: terminated(texts.description) },
    { tag: 0x0131, type: ASCII, data: terminated(texts.software) },
    { tag: 0x8769, type: LONG, data: Buffer.alloc(4) },
  ];
  const inner: Entry[] = [
    { tag: 0x9000, type: UNDEFINED, data: Buffer.from("0232", "latin1") },
    { tag: 0x9286, type: UNDEFINED, data: unicodeComment(texts.comment) },
  ];
  const innerOffset = HEADER_BYTES + directoryBytes(main);
  main[2]?.data.writeUInt32BE(innerOffset);
  return Buffer.concat([
    Buffer.from("MM\0*\0\0\0\x08", "latin1"),
    directory(main, HEADER_BYTES),
    directory(inner, innerOffset),
  ]);
}

function terminated(text: string): Buffer {
  return Buffer.from(`${text.replaceAll("\0", "")}\0`, "utf8");
}

function unicodeComment(text: string): Buffer {
  return Buffer.concat([Buffer.from("UNICODE\0", "latin1"), Buffer.from(text, "utf16le").swap16()]);
}

function directoryBytes(entries: readonly Entry[]): number {
  return (
    tableBytes(entries) +
    entries.reduce((sum, { data }) => sum + (data.length > 4 ? even(data.length) : 0), 0)
  );
}

function tableBytes(entries: readonly Entry[]): number {
  return 2 + entries.length * 12 + 4;
}

function even(length: number): number {
  return length + (length % 2);
}

function directory(entries: readonly Entry[], offset: number): Buffer {
  const out = Buffer.alloc(directoryBytes(entries));
  out.writeUInt16BE(entries.length, 0);
  let heap = tableBytes(entries);
  entries.forEach(({ tag, type, data }, index) => {
    const at = 2 + index * 12;
    out.writeUInt16BE(tag, at);
    out.writeUInt16BE(type, at + 2);
    out.writeUInt32BE(type === LONG ? data.length / 4 : data.length, at + 4);
    if (data.length <= 4) {
      data.copy(out, at + 8);
    } else {
      out.writeUInt32BE(offset + heap, at + 8);
      data.copy(out, heap);
      heap += even(data.length);
    }
  });
  return out;
}
