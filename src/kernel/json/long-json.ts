import { decodeDataUrl } from "../base64.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const PADDING = 0x3d;
/** Shorter texts cost little. */
const LONG_BYTES = 64 * 1024;
/** Base64 is decoded in steps of this many characters, a multiple of 4. */
const STEP = 64 * 1024;
/** A data URL has its Base64 behind a comma, which comes soon. */
const DATA_URL = /^data:[^,]{0,200},/;
const MARK = "\u0000long text ";

/** JSON without its long texts, but with the heads of data URLs, and a way to read these texts as Base64. */
export interface LongJson {
  value: unknown;
  /** Decodes the Base64 of a text in `value`, or of a data URL there. */
  decode(text: string): Buffer;
}

/**
 * Parses JSON whose images stay outside the parser, which would copy each of them twice. For each long
 * text, `memory` gets the most bytes that its image can have, and returns a buffer for them. Throws `SyntaxError` for
 * anything else than JSON.
 */
export function parseLongJson(
  bytes: Buffer,
  memory: (most: number) => Buffer = Buffer.allocUnsafeSlow,
): LongJson {
  const longs: Buffer[] = [];
  const pieces: string[] = [];
  let copied = 0;
  for (let open = bytes.indexOf(QUOTE); open >= 0; ) {
    const close = endOfText(bytes, open + 1);
    if (close < 0) break;
    const text = bytes.subarray(open + 1, close);
    if (text.length >= LONG_BYTES && !text.includes(BACKSLASH)) {
      const head = DATA_URL.exec(text.toString("latin1", 0, 256))?.[0].length ?? 0;
      const decoded = decodeLong(text.subarray(head), memory);
      if (decoded !== null) {
        const mark = JSON.stringify(MARK + longs.length).slice(1, -1);
        pieces.push(bytes.toString("utf8", copied, open + 1 + head), mark);
        longs.push(decoded);
        copied = close;
      }
    }
    open = bytes.indexOf(QUOTE, close + 1);
  }
  pieces.push(bytes.toString("utf8", copied));
  return {
    value: JSON.parse(pieces.join("")),
    decode: (text) => {
      const at = text.startsWith("data:") ? text.indexOf(",") + 1 : 0;
      const long = text.startsWith(MARK, at) ? longs[Number(text.slice(at + MARK.length))] : undefined;
      return long ?? decodeDataUrl(text);
    },
  };
}

/** Returns null for anything else than Base64. The decoder skips other characters, so they make the result shorter. */
function decodeLong(text: Buffer, memory: (most: number) => Buffer): Buffer | null {
  const length = lengthWithoutPadding(text);
  if (length % 4 === 1) return null;
  const bytes = Math.floor((length * 3) / 4);
  const room = memory(bytes);
  let used = 0;
  for (let at = 0; at < text.length; at += STEP)
    used += room.write(text.toString("latin1", at, at + STEP), used, "base64");
  return used === bytes ? room.subarray(0, used) : null;
}

function lengthWithoutPadding(base64: Buffer): number {
  let length = base64.length;
  while (length > base64.length - 2 && base64[length - 1] === PADDING) length--;
  return length;
}

/** The index of the quote that ends a text; -1 when nothing does. */
function endOfText(bytes: Buffer, from: number): number {
  for (let at = bytes.indexOf(QUOTE, from); at >= 0; at = bytes.indexOf(QUOTE, at + 1)) {
    let before = at;
    while (before > from && bytes[before - 1] === BACKSLASH) before--;
    if ((at - before) % 2 === 0) return at;
  }
  return -1;
}
