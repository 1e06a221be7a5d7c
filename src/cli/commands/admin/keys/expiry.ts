const DAY_MS = 86_400_000;
const DAY = /^\d{4}-\d{2}-\d{2}$/;
const MOMENT =
  /^\d{4}-\d{2}-\d{2}[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/**
 * When a key ends. A mere day means its end in UTC, so that the key works all that day; a moment is RFC 3339, with its
 * offset. Null for anything else, and for days that no calendar has. Answers ms since 1970.
 */
export function parseExpiry(text: string): number | null {
  const upper = text.toUpperCase();
  if (!DAY.test(upper) && !MOMENT.test(upper)) return null;
  const day = upper.slice(0, 10);
  const dayMs = Date.parse(`${day}T00:00:00Z`);
  // Some engines take February 30 for March 2.
  if (Number.isNaN(dayMs) || !new Date(dayMs).toISOString().startsWith(day)) return null;
  if (upper === day) return dayMs + DAY_MS;
  const ms = Date.parse(upper.replace(" ", "T"));
  return Number.isNaN(ms) ? null : ms;
}
