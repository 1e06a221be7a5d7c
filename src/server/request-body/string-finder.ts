const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];
/** The meaning of a byte outside a string; 0 for bytes that do not matter. */
const [QUOTES, OPEN, CLOSE, SEPARATOR] = [1, 2, 3, 4];
const KINDS = new Uint8Array(256);
KINDS[QUOTE] = QUOTES;
for (const byte of [OPEN_LIST, OPEN_OBJECT]) KINDS[byte] = OPEN;
for (const byte of [CLOSE_LIST, CLOSE_OBJECT]) KINDS[byte] = CLOSE;
for (const byte of [COMMA, COLON]) KINDS[byte] = SEPARATOR;
/** More than the longest name with every character escaped. */
const MAX_NAME_BYTES = 200;

/** The path of strings in a JSON value, from the outside in: alternative field names, or `*` for every entry of a list. */
export type StringPath = readonly (readonly string[] | "*")[];

/** A part of a body: bytes that stay, including the quotes of a long string, or bytes between these quotes. */
export type BodyPart = { kind: "rest"; bytes: Buffer } | { kind: "text"; bytes: Buffer; isEnd: boolean };

/**
 * Finds the long strings at one path in JSON that arrives in chunks, reading each byte once. The bytes between quotes
 * keep their escapes. Invalid JSON stays invalid; nothing is repaired.
 */
export class StringFinder {
  readonly #path: StringPath;
  readonly #minBytes: number;
  /** Lists and objects that are open here. */
  #depth = 0;
  /** How many of these, from the outermost on, lie on the path. */
  #onWay = 0;
  /** Whether the next value in the innermost of these is a step of the path. */
  #isNext = false;
  /** Whether a colon came, so that the next string is not a name. */
  #isValue = false;
  /** The name that is being read or was read last; null when it does not matter. */
  #name: number[] | null = null;
  #state: "outside" | "text" | "at path" | "long" = "outside";
  #isEscaped = false;
  /** The bytes so far of a string at the path that is not long yet. */
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(path: StringPath, minBytes: number) {
    this.#path = path;
    this.#minBytes = minBytes;
  }

  /** Yields the parts of the next chunk in order. Their bytes are valid until the next call only. */
  *read(chunk: Buffer): Generator<BodyPart> {
    let at = 0;
    while (at < chunk.length) {
      if (this.#state === "outside" || this.#state === "text") {
        const from = at;
        at = this.#walk(chunk, at);
        yield { kind: "rest", bytes: chunk.subarray(from, at) };
        continue;
      }
      const quote = this.#findEnd(chunk, at);
      const end = quote < 0 ? chunk.length : quote;
      yield* this.#atPath(chunk.subarray(at, end), quote >= 0);
      at = end;
      if (quote < 0) continue;
      this.#state = "outside";
      at++;
      yield { kind: "rest", bytes: chunk.subarray(end, at) };
    }
  }

  /** Yields what is held back after the last chunk: a string without an end. */
  *end(): Generator<BodyPart> {
    if (this.#state === "at path") yield* this.#giveHeld("rest");
    if (this.#state === "long") yield { kind: "text", bytes: Buffer.alloc(0), isEnd: true };
    this.#state = "outside";
  }

  *#atPath(bytes: Buffer, isEnd: boolean): Generator<BodyPart> {
    if (this.#state === "long") {
      yield { kind: "text", bytes, isEnd };
      return;
    }
    if (this.#heldBytes + bytes.length >= this.#minBytes) {
      yield* this.#giveHeld("text");
      this.#state = "long";
      yield { kind: "text", bytes, isEnd };
    } else if (isEnd) {
      yield* this.#giveHeld("rest");
      yield { kind: "rest", bytes };
    } else {
      // A copy: the chunk may be a small part of a large piece of memory.
      this.#held.push(Buffer.from(bytes));
      this.#heldBytes += bytes.length;
    }
  }

  *#giveHeld(kind: "rest" | "text"): Generator<BodyPart> {
    for (const bytes of this.#held) yield kind === "rest" ? { kind, bytes } : { kind, bytes, isEnd: false };
    this.#held = [];
    this.#heldBytes = 0;
  }

  /** Returns the position of the first byte of the next string at the path. */
  #walk(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length && this.#state !== "at path") {
      at = this.#state === "text" ? this.#passText(chunk, at) : this.#passOutside(chunk, at);
    }
    return at;
  }

  /** Skips to the first byte of the next string. Every byte of a body passes here, so the state is in locals. */
  #passOutside(chunk: Buffer, from: number): number {
    const { length } = chunk;
    let depth = this.#depth;
    let onWay = this.#onWay;
    for (let i = from; i < length; i++) {
      const byte = chunk[i] as number;
      const kind = KINDS[byte];
      if (kind === 0 || (kind === SEPARATOR && depth > onWay)) continue;
      if (depth > onWay && kind === OPEN) depth++;
      else if (depth > onWay && kind === CLOSE) depth--;
      else {
        this.#depth = depth;
        if (kind === QUOTES) {
          this.#begin();
          return i + 1;
        }
        if (kind === OPEN) this.#open(byte === OPEN_LIST);
        else if (kind === CLOSE) this.#close();
        else if (!this.#isInList()) this.#separate(byte === COLON);
        depth = this.#depth;
        onWay = this.#onWay;
      }
    }
    this.#depth = depth;
    return length;
  }

  /** Skips to the byte after the string that is being read, or to the end of the chunk. */
  #passText(chunk: Buffer, from: number): number {
    const { length } = chunk;
    const name = this.#name;
    let isEscaped = this.#isEscaped;
    this.#isEscaped = false;
    for (let i = from; i < length; i++) {
      const byte = chunk[i] as number;
      if (isEscaped) isEscaped = false;
      else if (byte === BACKSLASH) isEscaped = true;
      else if (byte === QUOTE) {
        this.#state = "outside";
        return i + 1;
      }
      if (name !== null && name.length <= MAX_NAME_BYTES) name.push(byte);
    }
    this.#isEscaped = isEscaped;
    return length;
  }

  #begin(): void {
    this.#state = this.#isAtPath() ? "at path" : "text";
    if (this.#state === "text") this.#name = this.#isNameHere() ? [] : null;
  }

  #separate(isColon: boolean): void {
    this.#isNext = isColon && this.#isNameOnPath();
    this.#isValue = isColon;
  }

  /** The position of the quote that ends a string at the path; negative when it is not in this chunk. */
  #findEnd(chunk: Buffer, from: number): number {
    const begin = this.#isEscaped ? from + 1 : from;
    this.#isEscaped = false;
    let quote = chunk.indexOf(QUOTE, begin);
    let backslash = chunk.indexOf(BACKSLASH, begin);
    while (backslash >= 0 && (quote < 0 || backslash < quote)) {
      const after = backslash + 2;
      if (after > chunk.length) this.#isEscaped = true;
      if (after >= chunk.length) return -1;
      if (quote >= 0 && quote < after) quote = chunk.indexOf(QUOTE, after);
      backslash = chunk.indexOf(BACKSLASH, after);
    }
    return quote;
  }

  #open(isList: boolean): void {
    const isOnWay = this.#depth === this.#onWay && (this.#depth === 0 || this.#isNext);
    const step = this.#path[this.#onWay];
    this.#depth++;
    if (!isOnWay || step === undefined || (step === "*") !== isList) return;
    this.#onWay++;
    this.#isNext = isList;
    this.#isValue = isList;
  }

  #close(): void {
    if (this.#depth === 0) return;
    const wasOnWay = this.#depth === this.#onWay;
    this.#depth--;
    if (!wasOnWay) return;
    this.#onWay--;
    this.#isNext = this.#isInList();
    this.#isValue = true;
  }

  #isInList(): boolean {
    return this.#path[this.#onWay - 1] === "*";
  }

  #isAtPath(): boolean {
    return this.#isNext && this.#depth === this.#path.length && this.#onWay === this.#path.length;
  }

  #isNameHere(): boolean {
    return this.#depth > 0 && this.#depth === this.#onWay && !this.#isValue;
  }

  #isNameOnPath(): boolean {
    const step = this.#path[this.#onWay - 1];
    if (step === undefined || step === "*" || this.#name === null) return false;
    const raw = Buffer.from(this.#name).toString("latin1");
    if (!raw.includes("\\")) return step.includes(raw);
    try {
      return step.includes(JSON.parse(`"${raw}"`));
    } catch {
      return false;
    }
  }
}
