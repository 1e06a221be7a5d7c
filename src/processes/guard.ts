import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { environmentWith } from "../environment.ts";
import type { Clock } from "../kernel/clock.ts";
import { packageFile } from "../kernel/package-file.ts";

/** A command of this process, and the things to clean up after it. */
export interface Leftovers {
  /** The mark of every process that the command started. */
  mark: string;
  /** The directory to remove; null for none. */
  directory: string | null;
  /** The command, once its id is known. `group` is null if it shares the group of this process. */
  child?: { pid: number; group: number | null };
}

interface Guard {
  /** Replaces the list of the commands to clean up after. */
  update(leftovers: readonly Leftovers[]): void;
  /** Ends the guard without a clean-up. */
  dismiss(): Promise<void>;
}

/**
 * Starts a small process that ends the commands and removes their directories if this process ends without doing so. Even
 * `kill -9` closes the pipe between the two. The guard is detached from the terminal.
 */
export function startGuard(): Guard {
  const child = spawn(process.execPath, [packageFile("dist/guard-main.cjs")], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
    env: environmentWith({ NODE_OPTIONS: "" }),
  });
  const ended = once(child, "exit").catch(() => {});
  // The commands also run without a guard.
  child.on("error", () => {});
  child.stdin.on("error", () => {});
  return {
    update: (leftovers) => {
      child.stdin.write(`${JSON.stringify(leftovers)}\n`);
    },
    dismiss: async () => {
      child.stdin.end("[]\n");
      if (child.pid !== undefined) await ended;
    },
  };
}

/** The environment variable that marks every process that a command starts, so that leftovers can be found. */
export const MARK = "IMGBATCH_EXEC";

const PATIENCE_MS = 2000;
const POLL_MS = 25;

/** The processes that a command has started: its process group, if it has its own, and all with its mark. */
interface Descendants {
  /** The command itself, while it runs. */
  pid?: number;
  /** Null when the command shares the group of the process that started it. */
  group: number | null;
  mark: string;
}

/** Sends SIGTERM to the remaining processes of a command, and SIGKILL after two seconds. */
export async function endDescendants(descendants: Descendants, clock: Clock): Promise<void> {
  signalAll(descendants, "SIGTERM");
  for (let waitedMs = 0; waitedMs < PATIENCE_MS && isRunning(descendants); waitedMs += POLL_MS)
    await clock.sleep(POLL_MS);
  signalAll(descendants, "SIGKILL");
}

/** Sends a signal to each process once, without waiting. Skips processes that have ended. */
export function signalAll(descendants: Descendants, signal: NodeJS.Signals): void {
  for (const target of targetsOf(descendants)) trySignal(target, signal);
}

function isRunning(descendants: Descendants): boolean {
  return targetsOf(descendants).some((target) => trySignal(target, 0));
}

/** The group as a negative number (see kill(2)), and every marked process outside it. */
function targetsOf({ pid, group, mark }: Descendants): number[] {
  const outside = findMarked(mark, group);
  if (group !== null) return [-group, ...outside];
  return pid === undefined ? outside : [...new Set([pid, ...outside])];
}

function trySignal(target: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(target, signal);
    return true;
  } catch {
    return false;
  }
}

/** The marked processes that have left the group, found by their environment (Linux only). Never this process. */
function findMarked(mark: string, group: number | null): number[] {
  if (process.platform !== "linux") return [];
  return listProcesses().filter(
    (pid) => pid !== process.pid && carries(pid, `${MARK}=${mark}`) && groupOf(pid) !== group,
  );
}

function listProcesses(): number[] {
  return (
    readPath(() => readdirSync("/proc"))
      ?.filter((name) => /^\d+$/.test(name))
      .map(Number) ?? []
  );
}

function carries(pid: number, variable: string): boolean {
  const environment = readPath(() => readFileSync(`/proc/${pid}/environ`, "latin1"));
  return environment?.split("\0").includes(variable) ?? false;
}

/** The process group: the third field after the name, which may contain any character (see proc(5)). */
function groupOf(pid: number): number {
  const stat = readPath(() => readFileSync(`/proc/${pid}/stat`, "latin1")) ?? "";
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[2]);
}

/** Null if the process has ended meanwhile. */
function readPath<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}
