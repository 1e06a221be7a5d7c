import { formatDuration } from "../../kernel/durations.ts";

/** Less is not worth telling. */
const SHORTEST_MS = 1000;

/** A line of progress with the time that the work has taken; as it is when nobody knows, or it has only begun. */
export function withElapsed(text: string, sinceMs: number | undefined, nowMs: number): string {
  const elapsedMs = sinceMs === undefined ? 0 : nowMs - sinceMs;
  return elapsedMs < SHORTEST_MS ? text : `${text}, ${formatDuration(elapsedMs)}`;
}
