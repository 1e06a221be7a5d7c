import type { RunEvent } from "../contract/events.ts";

/** Takes the messages of a run while it works. */
export interface RunReporter {
  /** A line that stays visible. */
  note(line: string): void;
  /** A line for verbose output. */
  detail(line: string): void;
  /** The progress; the next one replaces it. `sinceMs`: when the work began, if its duration should be shown. */
  progress(text: string, sinceMs?: number): void;
  /** An event for programs that follow the run. */
  event?(event: RunEvent): void;
}
