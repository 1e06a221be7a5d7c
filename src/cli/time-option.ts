import { parseDuration } from "../kernel/durations.ts";
import { readOption, type TypedOptions } from "./option-values.ts";

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const MOMENT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/i;

/** A time in a form that the service takes: a day (UTC), a moment with its offset, or how long ago, such as `24h`. */
export function timeOption(options: TypedOptions, name: string, flag: string): string | undefined {
  const advice =
    "write a day such as 2030-01-31, a time such as 2030-01-31T18:00:00Z, or how long ago such as 24h";
  return readOption(options, name, flag, advice, (text) => {
    if ((DAY.test(text) || MOMENT.test(text)) && !Number.isNaN(Date.parse(text))) return text;
    const agoMs = /[a-z]$/.test(text) ? parseDuration(text) : null;
    return agoMs === null ? null : new Date(Date.now() - agoMs).toISOString().replace(/\.\d+Z$/, "Z");
  });
}
