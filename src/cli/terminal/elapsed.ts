import { formatDuration } from "../../kernel/durations.ts";

/** A shorter time is not shown. */
const SHORTEST_MS = 1000;

/** Adds the time since `sinceMs` to a progress text. Without a start, or within the first second, adds nothing. */
export function withElapsed(text: string, sinceMs: number | undefined, nowMs: number): string {
  const elapsedMs = sinceMs === undefined ? 0 : nowMs - sinceMs;
  return elapsedMs < SHORTEST_MS ? text : `${text}, ${formatDuration(elapsedMs)} elapsed`;
}
