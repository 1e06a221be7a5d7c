const DAY_MS = 86_400_000;
const DAY = /^\d{4}-\d{2}-\d{2}$/;
const MOMENT =
  /^\d{4}-\d{2}-\d{2}[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/**
 * Reads the time at which a key expires, and returns ms since 1970. A day means the end of that day in UTC, so that the
 * key works all day. A time is RFC 3339, with an offset. Returns null for any other text and for days that do not
 * exist.
 */
export function parseExpiry(text: string): number | null {
  const upper = text.toUpperCase();
  if (!DAY.test(upper) && !MOMENT.test(upper)) return null;
  const day = upper.slice(0, 10);
  const dayMs = Date.parse(`${day}T00:00:00Z`);
  // Date.parse reads February 30 as March 2.
  if (Number.isNaN(dayMs) || !new Date(dayMs).toISOString().startsWith(day)) return null;
  if (upper === day) return dayMs + DAY_MS;
  const ms = Date.parse(upper.replace(" ", "T"));
  return Number.isNaN(ms) ? null : ms;
}
