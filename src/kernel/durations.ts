const UNITS_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Reads `10s`, `45m`, `1h30m`, `500ms` and returns ms. A bare number means seconds. Null for any other text. */
export function parseDuration(text: string): number | null {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return null;
  let total = 0;
  for (const [, amount = "0", unit = "s"] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    total += Number(amount) * (UNITS_MS[unit] ?? 0);
  }
  return total;
}

/** `850 ms`, `12 s`, `3 min`, `2 h`, `5 d`: one unit, for people. A negative duration becomes `0 ms`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** The local time of day: `14:03:59`. */
export function clockTime(ms: number): string {
  const at = new Date(ms);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

/** The local time: `14:03:59` on the same day, else with day and zone, `2030-01-31 14:03:59 UTC+1`. */
export function momentText(ms: number, nowMs: number): string {
  const at = new Date(ms);
  if (at.toDateString() === new Date(nowMs).toDateString()) return clockTime(ms);
  const day = [at.getFullYear(), at.getMonth() + 1, at.getDate()].map((n) => String(n).padStart(2, "0"));
  const minutes = -at.getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const offset = `${hours}${rest === 0 ? "" : `:${String(rest).padStart(2, "0")}`}`;
  const zone = minutes === 0 ? "UTC" : `UTC${minutes < 0 ? "-" : "+"}${offset}`;
  return `${day.join("-")} ${clockTime(ms)} ${zone}`;
}

/** Returns a time since 1970 in whole seconds, as the APIs write it. Null stays null. */
export function toSeconds<Ms extends number | null>(ms: Ms): Ms {
  return (ms === null ? null : Math.floor(ms / 1000)) as Ms;
}
