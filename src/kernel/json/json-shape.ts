/** Bounds for JSON that a stranger sent. */
export interface JsonBounds {
  maxDepth: number;
  /** Elements of lists and objects, in all. */
  maxElements: number;
}

/**
 * Returns which bound a JSON text exceeds, or null. It looks at the bytes once and needs no memory. A parser could need
 * seconds for such a text, and many times its memory. The result for invalid JSON has no meaning: the parser refuses it.
 */
export function jsonExcess(json: Uint8Array, bounds: JsonBounds): "depth" | "elements" | null {
  const [quote, backslash, comma, open, openBrace, close, closeBrace] = [
    0x22, 0x5c, 0x2c, 0x5b, 0x7b, 0x5d, 0x7d,
  ];
  let depth = 0;
  let elements = 0;
  let isInString = false;
  for (let i = 0; i < json.length; i++) {
    const byte = json[i];
    if (isInString) {
      if (byte === backslash) i++;
      else if (byte === quote) isInString = false;
    } else if (byte === quote) isInString = true;
    else if (byte === open || byte === openBrace) {
      if (++depth > bounds.maxDepth) return "depth";
      if (++elements > bounds.maxElements) return "elements";
    } else if (byte === close || byte === closeBrace) depth--;
    else if (byte === comma && ++elements > bounds.maxElements) return "elements";
  }
  return null;
}
