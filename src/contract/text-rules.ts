import type { z } from "zod";
import { hasUnstorableText, isLongerThan } from "../kernel/text.ts";
import { FIXED_LIMITS } from "./limits.ts";

/**
 * The problem of a caller's `custom_id`, or null. The service checks it, and the client before it sends.
 */
export function customIdProblem(id: string): string | null {
  const max = FIXED_LIMITS.customIdChars;
  if (id.length === 0 || isLongerThan(id, max)) return `must have 1 to ${max} characters`;
  if (/\p{Cc}|[/\\]/u.test(id) || hasUnstorableText(id)) {
    return "must not hold control characters, `/` or `\\`";
  }
  return id === "." || id === ".." ? "must not be `.` or `..`" : null;
}

/** The id of an item that has none: its position in the request (or run), counted from 1. */
export function generatedCustomId(position: number): string {
  return `item_${String(position).padStart(6, "0")}`;
}

/** The ids that an item with `outputCount` images becomes: itself for one, `_01`, `_02`, … for more. */
export function expandedCustomIds(customId: string, outputCount: number): string[] {
  if (outputCount === 1) return [customId];
  return Array.from({ length: outputCount }, (_, i) => `${customId}_${String(i + 1).padStart(2, "0")}`);
}

/** The most reference images that an item may have for a model, unless the configuration sets a limit. */
export function referenceLimitByName(model: string): number {
  if (model.includes("flash-image") || model.includes("flash-lite-image")) return 3;
  return model.includes("pro-image") ? 14 : 0;
}

const NOUNS: Record<string, string> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
};

/**
 * The messages of a schema (zod's `error`) for a missing field and for a wrong type. Null keeps the message of any
 * other problem.
 */
export const inWords: z.core.$ZodErrorMap = ({ code, expected, input }) => {
  if (code !== "invalid_type") return null;
  const noun = NOUNS[String(expected)] ?? String(expected);
  return input === undefined ? `is required: ${noun}` : `must be ${noun}`;
};
