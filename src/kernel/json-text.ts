import { isAscii } from "node:buffer";

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const LETTER_U = 0x75;
const LONGEST_ESCAPE = 6;

const UTF_8 = { fatal: true, ignoreBOM: true };

/** Why a text is refused. */
export type TextProblem = "utf-8" | "json";

/**
 * Finds the quote that ends a JSON text whose bytes come in pieces. It is asked once for each piece, from the text's first byte
 * after the quote that begins it.
 */
export class TextEnd {
  /** Whether the next byte belongs to an escape. A caller that passes the same bytes again must restore the value from before. */
  isEscaped = false;

  /** Returns the index of the quote; -1 when the text goes on in the next piece. */
  find(bytes: Buffer, from: number): number {
    const first = this.isEscaped ? from + 1 : from;
    for (let at = first; ; ) {
      const quote = bytes.indexOf(QUOTE, at);
      const end = quote < 0 ? bytes.length : quote;
      let before = end;
      while (before > first && bytes[before - 1] === BACKSLASH) before--;
      // In a row of backslashes every second one is escaped.
      const isEscaped = (end - before) % 2 === 1;
      this.isEscaped = quote < 0 && isEscaped;
      if (quote < 0 || !isEscaped) return quote;
      at = quote + 1;
    }
  }
}

/**
 * Decodes the bytes between the quotes of a JSON text as they arrive, and finds the problems that a JSON parser would
 * find.
 */
export class JsonTextDecoder {
  readonly #utf8 = new TextDecoder("utf-8", UTF_8);
  /** The start of an escape whose end has not arrived. */
  #begun: Buffer = Buffer.alloc(0);
  /** Whether all bytes so far are ASCII. */
  #isAscii = true;
  problem: TextProblem | null = null;

  /** Returns the characters of the next part, with their escapes resolved; nothing after a problem. */
  decode(part: Buffer, isEnd: boolean): string {
    const bytes = this.#begun.length === 0 ? part : Buffer.concat([this.#begun, part]);
    const cut = isEnd ? bytes.length : wholeEscapes(bytes);
    // A copy: the caller reuses the memory of the part.
    this.#begun = Buffer.from(bytes.subarray(cut));
    if (this.problem === "utf-8") return "";
    const whole = bytes.subarray(0, cut);
    this.#isAscii &&= isAscii(whole);
    let raw: string;
    try {
      raw = this.#isAscii ? whole.toString("latin1") : this.#utf8.decode(whole, { stream: !isEnd });
    } catch {
      this.problem = "utf-8";
      return "";
    }
    if (this.problem !== null) return "";
    try {
      return JSON.parse(`"${raw}"`);
    } catch {
      this.problem = "json";
      return "";
    }
  }
}

const WHOLE_UTF_8 = new TextDecoder("utf-8", UTF_8);

/** Decodes a text of which all bytes are there. */
export function decodeJsonText(bytes: Buffer): { text: string; problem: TextProblem | null } {
  let problem: TextProblem = "utf-8";
  try {
    const raw = isAscii(bytes) ? bytes.toString("latin1") : WHOLE_UTF_8.decode(bytes);
    problem = "json";
    return { text: /\\|[^ -\uffff]/.test(raw) ? JSON.parse(`"${raw}"`) : raw, problem: null };
  } catch {
    return { text: "", problem };
  }
}

/** The number of bytes before an escape that is not complete. */
function wholeEscapes(bytes: Buffer): number {
  const last = bytes.lastIndexOf(BACKSLASH);
  if (last < bytes.length - LONGEST_ESCAPE) return bytes.length;
  let first = last;
  while (first > 0 && bytes[first - 1] === BACKSLASH) first--;
  // In a row of backslashes every second one is escaped.
  if ((last - first) % 2 === 1) return bytes.length;
  const length = bytes[last + 1] === LETTER_U ? LONGEST_ESCAPE : 2;
  return last + length > bytes.length ? last : bytes.length;
}
