import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { environmentWith } from "../../../environment.ts";

const PROGRAM = fileURLToPath(new URL("guard-main.js", import.meta.url));

/** What is to be tidied up after this process. */
export interface Leftovers {
  /** The mark of everything that the command started. */
  mark: string;
  /** Null when it is to stay. */
  directory: string | null;
  /** The command, once it runs; `group` is null when it shares the group of this process. */
  child?: { pid: number; group: number | null };
}

export interface Guard {
  /** What holds from now on. */
  tell(leftovers: Leftovers): void;
  /** All is tidy: it ends, and does nothing. */
  dismiss(): Promise<void>;
}

/**
 * A small process that ends the command and removes the directory when this process ends without having done so: even
 * `kill -9` closes the pipe between the two. It is out of reach of the terminal.
 */
export function startGuard(): Guard {
  const child = spawn(process.execPath, [PROGRAM], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
    env: environmentWith({ NODE_OPTIONS: "" }),
  });
  const ended = once(child, "exit").catch(() => {});
  // Without one the command runs as well.
  child.on("error", () => {});
  child.stdin.on("error", () => {});
  return {
    tell: (leftovers) => {
      child.stdin.write(`${JSON.stringify(leftovers)}\n`);
    },
    dismiss: async () => {
      child.stdin.end("null\n");
      if (child.pid !== undefined) await ended;
    },
  };
}
