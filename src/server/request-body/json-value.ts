import { z } from "zod";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { formatBytes, truncateCodePoints } from "../../kernel/text.ts";
import { fieldError } from "../http/errors.ts";

/**
 * What of a JSON value is kept: `any` of it, a `prompt` or an `image` if it is text, or `nothing`. A list in brackets has
 * the shape of its entries. An object has the shapes of its fields, and `*` the shape of all others. Without `*`, only the
 * name of any other field is kept, and whether it is null. `text` is `any` of which one text may take all the room of a body.
 */
export type Shape = "any" | "text" | "prompt" | "image" | "nothing" | ListShape | FieldShapes;
type ListShape = readonly [Shape];
interface FieldShapes {
  readonly [name: string]: Shape;
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
  return isList(shape) ? shape[0] : null;
}

/** The shape of a field; null when an object does not fit the shape. */
function fieldShape(shape: Shape, name: string): Shape | null {
  if (shape === "any") return "any";
  if (typeof shape === "string" || isList(shape)) return null;
  return (Object.hasOwn(shape, name) ? shape[name] : shape["*"]) ?? "nothing";
}

const isList = (shape: Shape): shape is ListShape => Array.isArray(shape);

const KIB = 1024;
const MIB = 1024 * KIB;
/** A shorter image stays in its body as text. */
export const SHORT_IMAGE_BYTES = 16 * KIB;

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

/** Why a string is refused. */
export type StringProblem = "utf-8" | "json";

export function invalidJson(problem: StringProblem | "depth" | "elements"): ImgbatchError {
  const messages = {
    depth: `The body is nested deeper than ${jsonDepth} levels.`,
    elements: `The body has more than ${jsonElements} elements.`,
    "utf-8": "The body is not valid UTF-8.",
    json: undefined,
  };
  return new ImgbatchError("INVALID_JSON", messages[problem]);
}
