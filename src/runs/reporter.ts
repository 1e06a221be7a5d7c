import type { RunEvent } from "../contract/events.ts";

/** How a run tells what it does. */
export interface RunReporter {
  /** Something to remember: a line that stays. */
  note(line: string): void;
  /** For those who want to know more. */
  detail(line: string): void;
  /** How far it is; the next one replaces it. `sinceMs`: when the work began, where that is worth telling. */
  progress(text: string, sinceMs?: number): void;
  /** For programs that follow the run. */
  event?(event: RunEvent): void;
}
