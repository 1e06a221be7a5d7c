import { isDumbTerminal } from "../../environment.ts";
import type { CommandContext } from "../command-line/command-context.ts";

/** Whether the live view fits: a person at a terminal that can redraw, who did not ask for plain output. */
export function mayShowDashboard({ global, results }: CommandContext): boolean {
  if (global.quiet || global.progress !== "auto" || !results.isForPeople) return false;
  if (!process.stdin.isTTY || !process.stdout.isTTY || !process.stdout.columns) return false;
  return !isDumbTerminal();
}
