import { jsonExcess } from "../../kernel/json/json-shape.ts";

const BOUNDS = { maxDepth: 64, maxElements: 200_000 };

/** Parses JSON with `parse`. Undefined for anything else, and for what is too deep or too long to be an answer. */
export function readJson<T = unknown>(bytes: Buffer, parse: (bytes: Buffer) => T = parsed): T | undefined {
  if (jsonExcess(bytes, BOUNDS) !== null) return undefined;
  try {
    return parse(bytes);
  } catch {
    return undefined;
  }
}

function parsed<T>(bytes: Buffer): T {
  return JSON.parse(bytes.toString("utf8"));
}

/** Follows a path of fields and list indexes into JSON of unknown shape. Undefined where it ends early. */
export function valueAt(value: unknown, ...path: readonly (string | number)[]): unknown {
  let at = value;
  for (const step of path) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, step)) return undefined;
    at = (at as Record<string | number, unknown>)[step];
  }
  return at;
}

/** The text there; null when there is none, or an empty one. */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string | null {
  const text = valueAt(value, ...path);
  return typeof text === "string" && text !== "" ? text : null;
}

/** The whole number from 0 up that is there; null for anything else. */
export function countAt(value: unknown, ...path: readonly (string | number)[]): number | null {
  const count = valueAt(value, ...path);
  return typeof count === "number" && Number.isSafeInteger(count) && count >= 0 ? count : null;
}

/** The list there; empty when there is none. */
export function listAt(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const list = valueAt(value, ...path);
  return Array.isArray(list) ? list : [];
}
