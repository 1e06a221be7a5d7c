import { z } from "zod";
import type { ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";

/**
 * What of a JSON value is kept: `any` of it, a `prompt` or an `image` if it is text, or `nothing`. A list in brackets has
 * the shape of its entries. An object has the shapes of its fields. Of any other field only its name is kept, and whether it
 * is null.
 */
export type Shape = "any" | "prompt" | "image" | "nothing" | ListShape | FieldShapes;
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
  return Object.fromEntries(fields);
}

/** The shape of an entry of a list; null when a list does not fit the shape. */
export function entryShape(shape: Shape): Shape | null {
  if (shape === "any") return "any";
  return isList(shape) ? shape[0] : null;
}

/** The shape of a field; null when an object does not fit the shape. */
export function fieldShape(shape: Shape, name: string): Shape | null {
  if (shape === "any") return "any";
  if (typeof shape === "string" || isList(shape)) return null;
  return (Object.hasOwn(shape, name) ? shape[name] : undefined) ?? "nothing";
}

const isList = (shape: Shape): shape is ListShape => Array.isArray(shape);

const KIB = 1024;
const MIB = 1024 * KIB;
/** A shorter image stays in its body as text. */
export const SHORT_IMAGE_BYTES = 16 * KIB;

/** What a body of this format may have at most. */
export function boundsOf({ prompts, images, promptChars, fields }: BodyFormat) {
  // A character of a prompt takes up to four bytes. The rest suffices for names, options and metadata.
  const textBytes = 4 * promptChars * prompts + SHORT_IMAGE_BYTES * images + 4 * MIB;
  return {
    textBytes: Math.ceil(textBytes / MIB) * MIB,
    fields: fields ?? Math.max(FIXED_LIMITS.jsonFields, 8 * (prompts + images)),
    // A character takes up to two units, and blanks around a prompt do not count.
    promptUnits: 4 * promptChars + KIB,
  };
}
