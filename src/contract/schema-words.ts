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
 * How a schema is to word its problems (zod's `error`): a field is missing, or of another type. Null leaves the rest as
 * it is.
 */
export const inWords: z.core.$ZodErrorMap = ({ code, expected, input }) => {
  if (code !== "invalid_type") return null;
  const noun = NOUNS[String(expected)] ?? String(expected);
  return input === undefined ? `is required: ${noun}` : `must be ${noun}`;
};
