import { spawn } from "node:child_process";
import { once } from "node:events";
import { environmentWith } from "../environment.ts";
import { packageFile } from "../kernel/files/package-file.ts";

/** A command of this process, and the things to clean up after it. */
export interface Leftovers {
  /** The mark of every process that the command started. */
  mark: string;
  /** The directory to remove; null for none. */
  directory: string | null;
  /** The command, once its id is known. `group` is null if it shares the group of this process. */
  child?: { pid: number; group: number | null };
}

export interface Guard {
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
