import { readdirSync, readFileSync } from "node:fs";
import type { Clock } from "../../kernel/clock.ts";
import { MARK } from "./child-environment.ts";

const PATIENCE_MS = 2000;
const POLL_MS = 25;

/** What a command has started: its process group, where it has one of its own, and all that carry its mark. */
export interface Descendants {
  /** Null when the command shares the group of this process. */
  group: number | null;
  mark: string;
}

/**
 * Asks what still runs of a command to end, and ends what does not within two seconds.
 * Rule: EXEC-4.
 */
export async function endLingering(descendants: Descendants, clock: Clock): Promise<void> {
  signalAll(descendants, "SIGTERM");
  for (let waitedMs = 0; waitedMs < PATIENCE_MS && isRunning(descendants); waitedMs += POLL_MS)
    await clock.sleep(POLL_MS);
  signalAll(descendants, "SIGKILL");
}

/** Signals all of them, without waiting. What has ended is passed over. */
export function signalAll(descendants: Descendants, signal: NodeJS.Signals): void {
  if (descendants.group !== null) trySignal(-descendants.group, signal);
  for (const pid of findMarked(descendants.mark)) trySignal(pid, signal);
}

function isRunning({ group, mark }: Descendants): boolean {
  return (group !== null && trySignal(-group, 0)) || findMarked(mark).length > 0;
}

function trySignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}

/** By their environment, where the system shows it (Linux): also those that left the group. Never this process. */
function findMarked(mark: string): number[] {
  if (process.platform !== "linux") return [];
  return listProcesses().filter((pid) => pid !== process.pid && carries(pid, `${MARK}=${mark}`));
}

function listProcesses(): number[] {
  try {
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number);
  } catch {
    return [];
  }
}

function carries(pid: number, variable: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1").split("\0").includes(variable);
  } catch {
    return false;
  }
}
