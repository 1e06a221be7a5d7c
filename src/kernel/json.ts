/** Whether a JSON value is an object: neither null nor a list. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns the fields of a JSON object; null for any other value. */
export function fieldsOf(value: unknown): Record<string, unknown> | null {
  return isObject(value) ? value : null;
}

/** As `Map.groupBy`, which Node 20 has not. */
export function groupBy<T, Key>(values: Iterable<T>, keyOf: (value: T) => Key): Map<Key, T[]> {
  const groups = new Map<Key, T[]>();
  for (const value of values) {
    const key = keyOf(value);
    const group = groups.get(key);
    if (group) group.push(value);
    else groups.set(key, [value]);
  }
  return groups;
}

type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };

/**
 * Returns the canonical JSON text of a value (RFC 8785): without white space, keys sorted by UTF-16 code units, numbers
 * and strings as ECMAScript writes them. Equal values give equal text, so the text can be hashed. Strings must be
 * well-formed.
 */
export function canonicalJson(value: JsonValue): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const entries = Object.entries(value as { [key: string]: JsonValue })
    .filter(([, v]) => v !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([k, v]) => `${JSON.stringify(k)}:${canonicalJson(v)}`);
  return `{${entries.join(",")}}`;
}

/** Bounds for JSON that a stranger sent. */
interface JsonBounds {
  maxDepth: number;
  /** Elements of lists and objects, in all. */
  maxElements: number;
}

/**
 * Returns which bound a JSON text exceeds, or null. It looks at the bytes once and needs no memory. A parser could need
 * seconds for such a text, and many times its memory. The result for invalid JSON has no meaning: the parser refuses it.
 * A worker gets the text of this function, so it must not use anything outside itself.
 */
export function jsonExcess(json: Uint8Array, bounds: JsonBounds): "depth" | "elements" | null {
  const [quote, backslash, comma, open, openBrace, close, closeBrace] = [
    0x22, 0x5c, 0x2c, 0x5b, 0x7b, 0x5d, 0x7d,
  ];
  /** This many plain characters in a row announce a long text, such as that of an image. */
  const calmBytes = 256;

  /**
   * Returns the index of the quote that ends the string which begins at `start`, or -1. In a long text it looks for the
   * next quote at once, which is twenty times as fast as a look at each byte.
   */
  const endOfString = (start: number): number => {
    let calm = 0;
    for (let i = start + 1; i < json.length; i++) {
      const byte = json[i];
      if (byte === quote) return i;
      calm = byte === backslash ? 0 : calm + 1;
      if (byte === backslash) i++;
      if (calm < calmBytes) continue;
      calm = 0;
      const next = json.indexOf(quote, i + 1);
      if (next < 0) return -1;
      let plain = next - 1;
      while (plain > i && json[plain] === backslash) plain--;
      i = plain;
    }
    return -1;
  };

  let depth = 0;
  let elements = 0;
  for (let i = 0; i < json.length; i++) {
    const byte = json[i];
    if (byte === quote) {
      i = endOfString(i);
      if (i < 0) return null;
    } else if (byte === open || byte === openBrace) {
      if (++depth > bounds.maxDepth) return "depth";
      if (++elements > bounds.maxElements) return "elements";
    } else if (byte === close || byte === closeBrace) depth--;
    else if (byte === comma && ++elements > bounds.maxElements) return "elements";
  }
  return null;
}

/** The most levels of lists and objects in JSON that a person or another program wrote. */
export const MOST_JSON_LEVELS = 64;

/** JSON text with more than `MOST_JSON_LEVELS` levels. */
export class TooDeepJson extends SyntaxError {
  constructor() {
    super(`is nested too deep: lists and objects may be ${MOST_JSON_LEVELS} levels deep`);
  }
}

/**
 * Parses JSON text that a person or another program wrote. Throws `SyntaxError` for other text, and `TooDeepJson` for a
 * value that nothing could check, print or copy level by level: the call stack would overflow.
 */
export function parseJson(text: string): unknown {
  const bounds = { maxDepth: MOST_JSON_LEVELS, maxElements: Number.POSITIVE_INFINITY };
  if (jsonExcess(new TextEncoder().encode(text), bounds) !== null) throw new TooDeepJson();
  return JSON.parse(text);
}
