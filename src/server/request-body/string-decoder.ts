import { isAscii } from "node:buffer";

const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const LONGEST_ESCAPE = 6;

/** Why the body of a text is refused. */
export type StringProblem = "utf-8" | "json";

/**
 * Reads what is between the quotes of a JSON text, in parts as they come: answers what each stands for, and finds
 * what a parser would find wrong with it.
 */
export class StringDecoder {
  readonly #utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** The beginning of an escape whose end has not come. */
  #begun: Buffer = Buffer.alloc(0);
  #problem: StringProblem | null = null;
  /** Whether all of it has been ASCII so far. */
  #isAscii = true;

  get problem(): StringProblem | null {
    return this.#problem;
  }

  /** The characters of the part, escapes not yet read; null when they are no UTF-8. */
  decode(part: Buffer, isEnd: boolean): string | null {
    const bytes = this.#begun.length === 0 ? part : Buffer.concat([this.#begun, part]);
    const cut = isEnd ? bytes.length : wholeEscapes(bytes);
    // A copy: the part's memory is not ours.
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

  /** What decoded characters stand for; null when they may not be in a text, or others before were wrong. */
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

/** How many bytes there are up to an escape that has no end. */
function wholeEscapes(bytes: Buffer): number {
  const last = bytes.lastIndexOf(BACKSLASH);
  if (last < bytes.length - LONGEST_ESCAPE) return bytes.length;
  let first = last;
  while (first > 0 && bytes[first - 1] === BACKSLASH) first--;
  // Of several in a row each second one is escaped by the one before.
  if ((last - first) % 2 === 1) return bytes.length;
  const length = bytes[last + 1] === LETTER_U ? LONGEST_ESCAPE : 2;
  return last + length > bytes.length ? last : bytes.length;
}
