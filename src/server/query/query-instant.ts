import type { Request } from "express";
import { invalidQuery, queryText } from "./query.ts";

const RFC_3339 = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$/;
const DAY = /^\d{4}-\d{2}-\d{2}$/;
const UNIX_SECONDS = /^\d{1,11}$/;
const DAY_SECONDS = 86_400;

/** The span of a time in a query, in whole seconds since 1970: one second, or a day of UTC. */
export interface QueryInstant {
  firstSecond: number;
  lastSecond: number;
}

/** A query parameter as a time: RFC 3339, `YYYY-MM-DD` or Unix seconds. Undefined when absent. */
export function readInstant(request: Request, name: string): QueryInstant | undefined {
  // A plus that was not encoded arrives as a space; in a time it can only have been a plus.
  const text = queryText(request, name)?.replace(/ (?=\d{2}:\d{2}$)/, "+");
  if (text === undefined) return undefined;
  if (UNIX_SECONDS.test(text)) return second(Number(text));
  if (DAY.test(text) && isRealDay(text)) {
    const firstSecond = Date.parse(`${text}T00:00:00Z`) / 1000;
    return { firstSecond, lastSecond: firstSecond + DAY_SECONDS - 1 };
  }
  if (RFC_3339.test(text) && isRealDay(text.slice(0, 10))) {
    const ms = Date.parse(text.replace(" ", "T").toUpperCase());
    if (!Number.isNaN(ms)) return second(Math.floor(ms / 1000));
  }
  throw invalidQuery(name, "must be an RFC 3339 time, a day such as 2030-01-31, or Unix seconds");
}

function second(value: number): QueryInstant {
  return { firstSecond: value, lastSecond: value };
}

/** `Date` reads February 30 as a day of March; here it is an error. */
function isRealDay(day: string): boolean {
  const ms = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(day);
}
