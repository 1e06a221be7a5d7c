import { numberToMicros } from "../../kernel/money.ts";

/*
 * Reading of single fields of an answer. It is tolerant: a field that is missing, or holds something else, is null. These
 * readers are written by hand because loading a library of schemas takes longer than a short command may.
 */

/** The most dollars that count as an amount: as many as can be counted in micro-dollars. */
export const MOST_USD = 1_000_000_000;
const LAST_SECOND = 8_640_000_000_000;

export function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** A whole number from 0 up. */
export function countOf(value: unknown, most = Number.MAX_SAFE_INTEGER): number | null {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= most
    ? (value as number)
    : null;
}

/** An amount of dollars. */
export function usdOf(value: unknown, least = -MOST_USD): number | null {
  return typeof value === "number" && value >= least && value <= MOST_USD ? value : null;
}

/** The same in micro-dollars. */
export function microsOf(value: unknown, least = -MOST_USD): number | null {
  const usd = usdOf(value, least);
  return usd === null ? null : numberToMicros(usd);
}

/** A time in seconds since 1970, within the range of dates, in ms. */
export function momentMsOf(value: unknown): number | null {
  return Number.isSafeInteger(value) && Math.abs(value as number) <= LAST_SECOND
    ? (value as number) * 1000
    : null;
}

/** A number that may be written as text. */
export function numeric(value: unknown): unknown {
  return typeof value === "string" && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value;
}
