import { SIZE_TIERS, type SizeTier } from "../contract/image-formats.ts";
import type { Report } from "./problems.ts";

export const RATIO_ADVICE = "write width:height in whole numbers, such as 1:1, 3:2 or 16:9";
export const SIZE_ADVICE = `use ${SIZE_TIERS.join(", ")}`;

/** Batches have neither field. */
export const NO_SHAPES = "a batch makes 1K images in the ratio that the model chooses";

/** The shape and size that a line asks for. An absent one is that of the run. */
export interface Shape {
  aspectRatio?: string;
  size?: SizeTier;
}

/** The only size of batches. */
const BATCH_SIZE: SizeTier = "1K";

/** Returns null for a text that is not two numbers. Whether a model makes the ratio is not checked. */
export function readRatio(text: string): string | null {
  return /^[1-9]\d?:[1-9]\d?$/.test(text) ? text : null;
}

/** Reads a size in either case; null for any other text. */
export function readSize(text: string): SizeTier | null {
  return SIZE_TIERS.find((tier) => tier === text.toUpperCase()) ?? null;
}

/** Checks the fields `aspect_ratio` and `size` of a row. */
export function checkShape(fields: Record<string, unknown>, report: Report): Shape {
  const { aspect_ratio = null, size = null } = fields;
  const aspectRatio = checked(aspect_ratio, readRatio, "aspect_ratio", RATIO_ADVICE, report);
  const tier = checked(size, readSize, "size", SIZE_ADVICE, report);
  return { ...(aspectRatio === null ? {} : { aspectRatio }), ...(tier === null ? {} : { size: tier }) };
}

function checked<T>(
  value: unknown,
  read: (text: string) => T | null,
  field: string,
  advice: string,
  report: Report,
): T | null {
  if (value === null) return null;
  const found = typeof value === "string" || typeof value === "number" ? read(String(value)) : null;
  if (found === null) report(field, `${JSON.stringify(value)}: ${advice}`);
  return found;
}

/** Returns the field with which a line asks for more than a batch can make; null if it asks for nothing special. */
export function unbatchableField({ aspectRatio, size = BATCH_SIZE }: Shape): string | null {
  if (aspectRatio !== undefined) return "aspect_ratio";
  return size === BATCH_SIZE ? null : "size";
}
