import type { z } from "zod";

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
