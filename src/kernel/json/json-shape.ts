/** Bounds for JSON that a stranger sent. */
export interface JsonBounds {
  maxDepth: number;
  /** Elements of lists and objects, in all. */
  maxElements: number;
}

/**
 * Whether JSON text is nested deeper, or has more elements, than allowed, by looking at its bytes only. A parser given
 * such text can take seconds, and what it makes of it many times the text's memory; this takes one pass and none.
 * Text that is no JSON gets some answer: the parser will refuse it.
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
