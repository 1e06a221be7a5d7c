import type { CommandContext } from "./command.ts";

/** Whether a person looks at a terminal that can redraw: else lines are better. */
export async function mayShowLive({ global, results }: CommandContext): Promise<boolean> {
  if (global.quiet || global.progress !== "auto" || !results.isForPeople) return false;
  if (!process.stdin.isTTY || !process.stdout.isTTY || !process.stdout.columns) return false;
  const { isStillTerminal } = await import("../config.ts");
  return !isStillTerminal();
}
