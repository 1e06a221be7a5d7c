import { isUtf8 } from "node:buffer";
import { randomBytes } from "node:crypto";
import { z } from "zod";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { decodeJsonText, JsonTextDecoder, TextEnd, type TextProblem } from "../../kernel/json-text.ts";
import { formatBytes, truncateCodePoints } from "../../kernel/text.ts";
import { fieldError } from "../http/errors.ts";

/**
 * What of a JSON value is kept: `any` of it, a `prompt` or an `image` if it is text, or `nothing`. A list in brackets has
 * the shape of its entries. An object has the shapes of its fields, and `*` the shape of all others. Without `*`, only the
 * name of any other field is kept, and whether it is null. `text` is `any` of which one text may take all the room of a body.
 */
export type Shape = "any" | "text" | "prompt" | "image" | "nothing" | ListShape | FieldShapes | OneOf;
type ListShape = readonly [Shape];
interface FieldShapes {
  readonly [name: string]: Shape;
}

/** A value that is a text, a list or an object, each of its own shape. */
export class OneOf {
  readonly text: "any" | "prompt" | "image";
  readonly list: ListShape;
  readonly fields: FieldShapes;

  constructor(shapes: { text: OneOf["text"]; list: ListShape; fields: FieldShapes }) {
    this.text = shapes.text;
    this.list = shapes.list;
    this.fields = shapes.fields;
  }
}

/** The shape of a body, and what bounds its size. */
export interface BodyFormat {
  shape: Shape;
  /** The most prompts and images of a request. Their number limits what all texts of a body take. */
  prompts: number;
  images: number;
  /** Characters of a prompt. Of one that is far longer only the beginning is kept, so it fails the check of its length. */
  promptChars: number;
  /** The most fields. The default suffices for the prompts and images. */
  fields?: number;
  /** The code of an error about a field. */
  code(param: string): ServiceErrorCode;
}

/** A body without prompts and images. */
export function plainFormat(shape: Shape, code: ServiceErrorCode): BodyFormat {
  return { shape, prompts: 0, images: 0, promptChars: 0, code: () => code };
}

/**
 * The shape of the values that a schema describes. `marks` has the shapes of values by their path, such as
 * `items[].prompt`; a schema does not tell what a text is for. With `isSnakeToo`, fields have a spelling with underscores, too.
 */
export function shapeOf(
  schema: unknown,
  marks: Readonly<Record<string, Shape>> = {},
  isSnakeToo = false,
  path = "",
): Shape {
  const mark = marks[path];
  if (mark !== undefined) return mark;
  const within = (inner: unknown, at: string) => shapeOf(inner, marks, isSnakeToo, at);
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable)
    return within(schema.unwrap(), path);
  if (schema instanceof z.ZodArray) return [within(schema.element, `${path}[]`)];
  // An object without fields of its own is kept as it is.
  if (!(schema instanceof z.ZodObject) || Object.keys(schema.shape).length === 0) return "any";
  const fields = Object.entries(schema.shape).flatMap(([name, inner]) => {
    const shape = within(inner, path === "" ? name : `${path}.${name}`);
    const snake = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    return isSnakeToo ? [[name, shape] as const, [snake, shape] as const] : [[name, shape] as const];
  });
  const others = marks[path === "" ? "*" : `${path}.*`];
  return { ...Object.fromEntries(fields), ...(others && { "*": others }) };
}

/** The shape of an entry of a list; null when a list does not fit the shape. */
function entryShape(shape: Shape): Shape | null {
  if (shape === "any") return "any";
  if (shape instanceof OneOf) return shape.list[0];
  return isList(shape) ? shape[0] : null;
}

/** The shape of a field; null when an object does not fit the shape. */
function fieldShape(shape: Shape, name: string): Shape | null {
  if (shape === "any") return "any";
  if (shape instanceof OneOf) return fieldShape(shape.fields, name);
  if (typeof shape === "string" || isList(shape)) return null;
  return (Object.hasOwn(shape, name) ? shape[name] : shape["*"]) ?? "nothing";
}

const isList = (shape: Shape): shape is ListShape => Array.isArray(shape);

const KIB = 1024;
const MIB = 1024 * KIB;
/** A shorter image stays in its body as text. */
const SHORT_IMAGE_BYTES = 16 * KIB;

/** What a body of this format may have at most. */
function boundsOf({ prompts, images, promptChars, fields }: BodyFormat) {
  // A character of a prompt takes up to four bytes. The rest suffices for names, options and metadata.
  const textBytes = 4 * promptChars * prompts + SHORT_IMAGE_BYTES * images + 4 * MIB;
  return {
    textBytes: Math.ceil(textBytes / MIB) * MIB,
    fields: fields ?? Math.max(FIXED_LIMITS.jsonFields, 8 * (prompts + images)),
    // A character takes up to two units, and blanks around a prompt do not count.
    promptUnits: 4 * promptChars + KIB,
  };
}

const { jsonDepth, jsonElements, jsonNameBytes, jsonTextBytes } = FIXED_LIMITS;
/** Texts in errors. */
const [SHOWN_NAME_CHARS, SHOWN_PATH_CHARS] = [40, 120];
/** What a value takes besides its text. */
const VALUE_BYTES = 16;

/** A list or an object that is open. */
interface Frame {
  /** Null when its content is not kept. */
  into: unknown[] | Record<string, unknown> | null;
  isList: boolean;
  shape: Shape;
  /** The index or the name of the value that is being read. */
  at: number | string;
}

/**
 * The value of a JSON text, as far as it was read: what its format names, within the bounds of that format. Methods throw
 * `INVALID_JSON`, and the error about the field that exceeds a bound.
 */
class JsonValue {
  readonly #format: BodyFormat;
  readonly #bounds: ReturnType<typeof boundsOf>;
  readonly #open: Frame[] = [];
  #elements = 0;
  #fields = 0;
  /** The whole value. */
  root: unknown;
  /** Bytes that it takes by now. */
  keptBytes = 0;

  constructor(format: BodyFormat) {
    this.#format = format;
    this.#bounds = boundsOf(format);
  }

  /** The kind of the innermost list or object that is open; null at the top. */
  get within(): "list" | "object" | null {
    if (this.#open.length === 0) return null;
    return this.#top.isList ? "list" : "object";
  }

  /** The shape of the value that comes next, if it is a text. */
  get textShape(): Shape {
    const { shape } = this;
    return shape instanceof OneOf ? shape.text : shape;
  }

  /** The shape of the value that comes next. */
  get shape(): Shape {
    if (this.#open.length === 0) return this.#format.shape;
    const { into, isList, shape, at } = this.#top;
    if (into === null) return "nothing";
    return (isList ? entryShape(shape) : fieldShape(shape, at as string)) ?? "nothing";
  }

  /** How much of the next text is kept. A text that nobody reads leaves only whether it is empty. */
  get mostChars(): number {
    const { textShape: shape } = this;
    if (shape === "image" || shape === "any") return Number.POSITIVE_INFINITY;
    // One character more than there is room for: the body is refused then.
    if (shape === "text") return this.#bounds.textBytes + 1;
    return shape === "prompt" ? this.#bounds.promptUnits : 1;
  }

  begin(isList: boolean): void {
    if (this.#open.length === jsonDepth) throw invalidJson("depth");
    this.#countElement();
    const { shape } = this;
    const into = isList ? [] : {};
    const isKept = (isList ? entryShape(shape) : fieldShape(shape, "")) !== null;
    this.#place(into);
    this.#open.push({ into: isKept ? into : null, isList, shape, at: isList ? 0 : "" });
  }

  /** Another entry or field follows. */
  next(): void {
    this.#countElement();
    const top = this.#top;
    if (!top.isList) return;
    top.at = (top.at as number) + 1;
    // Of other lists nothing is kept.
    if (top.into !== null) this.#countField();
  }

  close(): void {
    this.#open.pop();
  }

  name(name: string): void {
    const isLong = 3 * name.length > jsonNameBytes && Buffer.byteLength(name) > jsonNameBytes;
    if (isLong) throw this.longName(name);
    this.#top.at = name;
    this.#countField();
    if (this.#top.into !== null) this.#keep(2 * name.length);
  }

  /** Takes a text, number, truth value or null. */
  take(value: unknown): void {
    if (typeof value !== "string") {
      this.#place(value);
      return;
    }
    const kept = value.slice(0, this.mostChars);
    if (this.#open.length === 0 || this.#top.into !== null)
      this.#keep(isOneByte(kept) ? kept.length : 2 * kept.length);
    this.#place(kept);
  }

  /** The error of a name of which this is the beginning. */
  longName(begin: string): ImgbatchError {
    this.#top.at = begin.slice(0, 2 * SHOWN_NAME_CHARS).toWellFormed();
    return this.error(`the name of a field has at most ${jsonNameBytes} bytes`);
  }

  /** The error of the text that comes next. */
  longText(): ImgbatchError {
    const most = formatBytes(jsonTextBytes);
    return this.error(`is too long: a text that is no prompt and no image has at most ${most}`);
  }

  /** An error about the value that comes next. */
  error(problem: string): ImgbatchError {
    const path = this.#open.reduce((text, { isList, at }) => {
      if (isList) return `${text}[${at}]`;
      const name = truncateCodePoints(String(at), SHOWN_NAME_CHARS, "…");
      return text === "" ? name : `${text}.${name}`;
    }, "");
    const param = truncateCodePoints(path, SHOWN_PATH_CHARS, "…") || "body";
    return fieldError(this.#format.code(param), param, problem);
  }

  get #top(): Frame {
    return this.#open[this.#open.length - 1] as Frame;
  }

  #place(value: unknown): void {
    if (this.#open.length === 0) {
      this.root = value;
      return;
    }
    const { into, at } = this.#top;
    if (into === null) return;
    this.#keep(VALUE_BYTES);
    if (Array.isArray(into)) into.push(value);
    else if (at !== "__proto__") into[at] = value;
    // As with `JSON.parse`, the name has no further meaning.
    else Object.defineProperty(into, at, { value, writable: true, enumerable: true, configurable: true });
  }

  #keep(bytes: number): void {
    this.keptBytes += bytes;
    if (this.keptBytes <= this.#bounds.textBytes) return;
    const most = formatBytes(this.#bounds.textBytes);
    throw this.error(`the texts of a body take at most ${most} in all, without its images`);
  }

  #countElement(): void {
    if (++this.#elements > jsonElements) throw invalidJson("elements");
  }

  #countField(): void {
    if (++this.#fields <= this.#bounds.fields) return;
    throw this.error(`a body has at most ${this.#bounds.fields} fields and entries of lists in all`);
  }
}

const isOneByte = (text: string) => !/[^\0-\xff]/.test(text);

function invalidJson(problem: TextProblem | "depth" | "elements"): ImgbatchError {
  const messages = {
    depth: `The body is nested deeper than ${jsonDepth} levels.`,
    elements: `The body has more than ${jsonElements} elements.`,
    "utf-8": "The body is not valid UTF-8.",
    json: undefined,
  };
  return new ImgbatchError("INVALID_JSON", messages[problem]);
}

const [QUOTE, COMMA, COLON] = [0x22, 0x2c, 0x3a];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];
/** Bytes between values. All others belong to a text, or to a word such as `true` or `-1.5`. */
const [BLANK, MARK] = [1, 2];
const KINDS = new Uint8Array(256);
for (const byte of [0x20, 0x09, 0x0a, 0x0d]) KINDS[byte] = BLANK;
for (const byte of [QUOTE, COMMA, COLON, OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT])
  KINDS[byte] = MARK;

/** Longer than any number that a double holds. */
const MOST_WORD_CHARS = 1024;
/** A character of a name can be written as an escape of six bytes. */
const MOST_NAME_BYTES = 6 * jsonNameBytes;

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

/** A long string whose beginning is kept. */
class LongString {
  readonly #decoder = new JsonTextDecoder();
  readonly #mostChars: number;
  #text = "";

  constructor(mostChars: number) {
    this.#mostChars = mostChars;
  }

  get problem(): TextProblem | null {
    return this.#decoder.problem;
  }

  /** As much of the string as is kept. It does not end in half of a character. */
  get text(): string {
    return this.#text.length < this.#mostChars ? this.#text : this.#text.replace(/[\ud800-\udbff]$/, "");
  }

  /** Takes the next part of the bytes between the quotes. */
  add(part: Buffer, isEnd: boolean): void {
    const text = this.#decoder.decode(part, isEnd);
    this.#text += text.slice(0, Math.max(0, this.#mostChars - this.#text.length));
  }
}

/** Bytes between the quotes of a long image. `name` stands for the image in the value. */
export interface ImagePart {
  name: string;
  bytes: Buffer;
  isEnd: boolean;
}

/**
 * Reads JSON (RFC 8259) as it arrives, and keeps what its format names. Everything is checked, as `JSON.parse` would,
 * also what is not kept. What is kept is bounded, whatever arrives. The first problem ends the reading.
 */
export class JsonReader {
  readonly #value: JsonValue;
  /** Begins the names of long images, which no caller can guess; null when they stay in the value. */
  readonly #imagePrefix: string | null;
  #images = 0;
  #failure: Error | null = null;
  #isBegun = false;
  #expected: "value" | "first value" | "name" | "first name" | "colon" | "end" = "value";
  /** The word that is being read. */
  #word = "";
  /** What is being read between quotes. */
  #text: "none" | "name" | "value" | "image" = "none";
  #textBytes = 0;
  readonly #textEnd = new TextEnd();
  /** The bytes of a text so far, while it is short. */
  #held: Buffer[] = [];
  /** The beginning of a long text. */
  #long: LongString | null = null;

  constructor(format: BodyFormat, { takesImages }: { takesImages: boolean }) {
    this.#value = new JsonValue(format);
    this.#imagePrefix = takesImages ? randomBytes(16).toString("hex") : null;
  }

  /** Bytes that the value takes by now. */
  get keptBytes(): number {
    return this.#value.keptBytes;
  }

  /** Reads the next bytes. Yields the parts of long images; their bytes are valid until the next call only. */
  *read(chunk: Buffer): Generator<ImagePart> {
    let at = 0;
    if (!this.#isBegun) {
      this.#isBegun = true;
      if (chunk.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK)) at = BYTE_ORDER_MARK.length;
    }
    while (at < chunk.length && this.#failure === null) {
      if (this.#text !== "image") {
        at = this.#readValues(chunk, at);
        continue;
      }
      const name = `${this.#imagePrefix}.${this.#images}`;
      for (const bytes of this.#held) yield { name, bytes, isEnd: false };
      this.#held = [];
      const quote = this.#textEnd.find(chunk, at);
      const end = quote < 0 ? chunk.length : quote;
      yield { name, bytes: chunk.subarray(at, end), isEnd: quote >= 0 };
      at = end;
      // The image may have been refused meanwhile.
      if (quote < 0 || this.#failure !== null) continue;
      at++;
      this.#images++;
      this.#text = "none";
      try {
        this.#take(name);
      } catch (error) {
        this.#fail(error as Error);
      }
    }
  }

  /** Returns the value after the last bytes. Throws `INVALID_JSON`, or the error about the field that exceeds a bound. */
  end(): unknown {
    try {
      if (this.#failure === null) this.#endAll();
    } catch (error) {
      this.#fail(error as Error);
    }
    if (this.#failure !== null) throw this.#failure;
    return this.#value.root;
  }

  /** Takes note of a problem in an image. */
  refuse(problem: TextProblem): void {
    if (this.#failure === null) this.#fail(invalidJson(problem));
  }

  #fail(error: Error): void {
    this.#failure = error;
    this.#value.root = undefined;
    this.#long = null;
    this.#held = [];
  }

  #endAll(): void {
    if (this.#text === "image") throw invalidJson("json");
    if (this.#text !== "none") {
      // The text has no end; bytes that are not UTF-8 are the greater problem.
      this.#endText(Buffer.alloc(0));
      throw invalidJson("json");
    }
    if (this.#word !== "") this.#endWord();
    if (this.#value.within !== null || this.#expected !== "end") throw invalidJson("json");
  }

  /** Returns the index of the first byte that was not read: the end of the chunk, or within a long image. */
  #readValues(chunk: Buffer, from: number): number {
    let at = from;
    try {
      while (at < chunk.length) {
        if (this.#text !== "none") {
          at = this.#readText(chunk, at);
          if (this.#isImage()) return at;
          continue;
        }
        const byte = chunk[at] as number;
        const kind = KINDS[byte];
        if (kind === 0) {
          at = this.#readWord(chunk, at);
          continue;
        }
        if (this.#word !== "") this.#endWord();
        if (kind === MARK) this.#takeMark(byte);
        at++;
      }
    } catch (error) {
      this.#fail(error as Error);
    }
    return at;
  }

  #isImage(): boolean {
    return this.#text === "image";
  }

  #takeMark(byte: number): void {
    const expected = this.#expected;
    const takesValue = expected === "value" || expected === "first value";
    const takesName = expected === "name" || expected === "first name";
    const { within } = this.#value;
    if (byte === QUOTE && (takesValue || takesName)) {
      this.#text = takesName ? "name" : "value";
      this.#textBytes = 0;
    } else if ((byte === OPEN_LIST || byte === OPEN_OBJECT) && takesValue) {
      this.#value.begin(byte === OPEN_LIST);
      this.#expected = byte === OPEN_LIST ? "first value" : "first name";
    } else if (byte === COLON && expected === "colon") this.#expected = "value";
    else if (byte === COMMA && expected === "end" && within !== null) {
      this.#value.next();
      this.#expected = within === "list" ? "value" : "name";
    } else if (
      (byte === CLOSE_LIST && within === "list" && (expected === "end" || expected === "first value")) ||
      (byte === CLOSE_OBJECT && within === "object" && (expected === "end" || expected === "first name"))
    ) {
      this.#value.close();
      this.#expected = "end";
    } else throw invalidJson("json");
  }

  #take(value: unknown): void {
    this.#expected = "end";
    this.#value.take(value);
  }

  /** A number, a truth value or null, or what is none of them. */
  #readWord(chunk: Buffer, from: number): number {
    let end = from;
    while (end < chunk.length && KINDS[chunk[end] as number] === 0) end++;
    if (this.#word.length + end - from > MOST_WORD_CHARS) {
      throw this.#value.error(`a number has at most ${MOST_WORD_CHARS} characters`);
    }
    this.#word += chunk.toString("latin1", from, end);
    return end;
  }

  #endWord(): void {
    const word = this.#word;
    this.#word = "";
    const takesValue = this.#expected === "value" || this.#expected === "first value";
    let value: unknown;
    try {
      value = JSON.parse(word);
    } catch {
      throw invalidJson(isUtf8(Buffer.from(word, "latin1")) ? "json" : "utf-8");
    }
    if (!takesValue) throw invalidJson("json");
    this.#take(value);
  }

  /** Reads a name or a text, as far as it is in the chunk. */
  #readText(chunk: Buffer, from: number): number {
    const wasEscaped = this.#textEnd.isEscaped;
    const quote = this.#textEnd.find(chunk, from);
    const end = quote < 0 ? chunk.length : quote;
    const size = this.#textBytes + end - from;
    if (this.#text === "name" && size > MOST_NAME_BYTES) {
      throw this.#value.longName(String(Buffer.concat([...this.#held, chunk.subarray(from, end)])));
    }
    if (this.#long === null && size >= SHORT_IMAGE_BYTES) {
      if (this.#value.textShape === "image" && this.#imagePrefix !== null) {
        this.#textEnd.isEscaped = wasEscaped;
        this.#text = "image";
        return from;
      }
      this.#long = new LongString(this.#value.mostChars);
      for (const bytes of this.#held) this.#long.add(bytes, false);
      this.#held = [];
    }
    if (size > jsonTextBytes && this.#value.textShape === "any") throw this.#value.longText();
    this.#textBytes = size;
    const bytes = chunk.subarray(from, end);
    if (quote >= 0) this.#endText(bytes);
    else if (this.#long !== null) this.#long.add(bytes, false);
    // A copy: the chunk may be a small part of a large piece of memory.
    else this.#held.push(Buffer.from(bytes));
    return quote < 0 ? end : end + 1;
  }

  #endText(last: Buffer): void {
    const long = this.#long;
    this.#long = null;
    long?.add(last, true);
    const decoded = long ?? decodeJsonText(this.#whole(last));
    if (decoded.problem !== null) throw invalidJson(decoded.problem);
    this.#takeText(decoded.text);
  }

  #takeText(text: string): void {
    const isName = this.#text === "name";
    this.#text = "none";
    if (isName) {
      this.#value.name(text);
      this.#expected = "colon";
    } else this.#take(text);
  }

  #whole(last: Buffer): Buffer {
    if (this.#held.length === 0) return last;
    const whole = Buffer.concat([...this.#held, last]);
    this.#held = [];
    return whole;
  }
}
