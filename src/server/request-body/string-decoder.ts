import { isAscii } from "node:buffer";

const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const LONGEST_ESCAPE = 6;

/** Why a string is refused. */
export type StringProblem = "utf-8" | "json";

/**
 * Decodes the bytes between the quotes of a JSON string as they arrive, and finds the problems that a JSON parser would
 * find.
 */
export class StringDecoder {
  readonly #utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** The start of an escape whose end has not arrived. */
  #begun: Buffer = Buffer.alloc(0);
  #problem: StringProblem | null = null;
  /** Whether all bytes so far are ASCII. */
  #isAscii = true;

  get problem(): StringProblem | null {
    return this.#problem;
  }

  /** Returns the characters of the part with their escapes; null when they are not UTF-8. */
  decode(part: Buffer, isEnd: boolean): string | null {
    const bytes = this.#begun.length === 0 ? part : Buffer.concat([this.#begun, part]);
    const cut = isEnd ? bytes.length : wholeEscapes(bytes);
    // A copy: the caller reuses the memory of the part.
    this.#begun = Buffer.from(bytes.subarray(cut));
    const whole = bytes.subarray(0, cut);
    this.#isAscii &&= isAscii(whole);
    if (this.#isAscii) return whole.toString("latin1");
    if (this.#problem === "utf-8") return null;
    try {
      return this.#utf8.decode(whole, { stream: !isEnd });
    } catch {
      this.#problem = "utf-8";
      return null;
    }
  }

  /** Returns the characters with escapes resolved; null when JSON forbids them, or after an earlier problem. */
  unescape(raw: string): string | null {
    if (this.#problem !== null) return null;
    try {
      return JSON.parse(`"${raw}"`);
    } catch {
      this.#problem = "json";
      return null;
    }
  }
}

/** A long string whose beginning is kept. */
export class LongString {
  readonly #decoder = new StringDecoder();
  readonly #mostChars: number;
  #text = "";

  constructor(mostChars: number) {
    this.#mostChars = mostChars;
  }

  get problem(): StringProblem | null {
    return this.#decoder.problem;
  }

  /** As much of the string as is kept. It does not end in half of a character. */
  get text(): string {
    return this.#text.length < this.#mostChars ? this.#text : this.#text.replace(/[\ud800-\udbff]$/, "");
  }

  /** Takes the next part of the bytes between the quotes. */
  add(part: Buffer, isEnd: boolean): void {
    const raw = this.#decoder.decode(part, isEnd);
    const text = raw === null ? "" : (this.#decoder.unescape(raw) ?? "");
    this.#text += text.slice(0, Math.max(0, this.#mostChars - this.#text.length));
  }
}

const UTF_8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Decodes a string of which all bytes are there. */
export function decodeString(bytes: Buffer): { text: string; problem: StringProblem | null } {
  let problem: StringProblem = "utf-8";
  try {
    const raw = isAscii(bytes) ? bytes.toString("latin1") : UTF_8.decode(bytes);
    problem = "json";
    return { text: JSON.parse(`"${raw}"`), problem: null };
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
