import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { formatBytes, truncateCodePoints } from "../../kernel/text.ts";
import { fieldError } from "../http/errors.ts";
import { type BodyFormat, boundsOf, entryShape, fieldShape, type Shape } from "./body-shape.ts";
import type { StringProblem } from "./json-strings.ts";

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
export class JsonValue {
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

  /** The shape of the value that comes next. */
  get shape(): Shape {
    if (this.#open.length === 0) return this.#format.shape;
    const { into, isList, shape, at } = this.#top;
    if (into === null) return "nothing";
    return (isList ? entryShape(shape) : fieldShape(shape, at as string)) ?? "nothing";
  }

  /** How much of the next text is kept. A text that nobody reads leaves only whether it is empty. */
  get mostChars(): number {
    const { shape } = this;
    if (shape === "image" || shape === "any") return Number.POSITIVE_INFINITY;
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

export function invalidJson(problem: StringProblem | "depth" | "elements"): ImgbatchError {
  const messages = {
    depth: `The body is nested deeper than ${jsonDepth} levels.`,
    elements: `The body has more than ${jsonElements} elements.`,
    "utf-8": "The body is not valid UTF-8.",
    json: undefined,
  };
  return new ImgbatchError("INVALID_JSON", messages[problem]);
}
