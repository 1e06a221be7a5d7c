import { isDumbTerminal, preferProductionBuilds } from "../../environment.ts";
import type { CommandContext } from "../command-line/command-context.ts";

/** Whether a person looks at a terminal that can redraw: else lines are better. */
export function mayShowDashboard({ global, results }: CommandContext): boolean {
  if (global.quiet || global.progress !== "auto" || !results.isForPeople) return false;
  if (!process.stdin.isTTY || !process.stdout.isTTY || !process.stdout.columns) return false;
  return !isDumbTerminal();
}

/** Loads the live view, which nothing but a terminal needs. */
export async function loadDashboard(): Promise<typeof import("../../dashboard/show.tsx")> {
  preferProductionBuilds();
  return import("../../dashboard/show.tsx");
}
