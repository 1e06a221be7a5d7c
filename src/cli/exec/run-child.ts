import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import { systemClock } from "../../kernel/clock.ts";
import { type Descendants, endLingering, signalAll } from "./lingering.ts";

/** Passed on to the command. Those that a terminal sends to everything in it are not passed on there. */
const PASSED_ON = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR2"] as const;
const FROM_TERMINALS: readonly string[] = ["SIGINT", "SIGQUIT"];

export interface Child {
  /** The exit code as a shell tells it: of a signal 128 and its number; 127 for no such command, 126 for one that cannot run. */
  ended: Promise<number>;
  /** Ends it and all that it has started, at once. */
  kill(): void;
}

/**
 * Runs a command on this process's own standard streams and passes signals on to it. When it has ended, so has
 * everything that it started. On a terminal it stays in the terminal's group, so that it can read the keys.
 * Rules: EXEC-2, EXEC-3, EXEC-4.
 */
export function runChild(
  command: readonly string[],
  options: {
    env: NodeJS.ProcessEnv;
    cwd: string;
    mark: string;
    isOnTerminal: boolean;
    /** Told why it could not be started. */
    onProblem: (line: string) => void;
  },
): Child {
  const [file = "", ...args] = command;
  const { env, cwd, mark, isOnTerminal, onProblem } = options;
  const child = spawn(file, args, { cwd, env, stdio: "inherit", detached: !isOnTerminal });
  const descendants: Descendants = { group: isOnTerminal ? null : (child.pid ?? null), mark };
  const stopPassing = passSignals(child, isOnTerminal);
  const ended = new Promise<number>((resolve) => {
    child.once("error", (error: NodeJS.ErrnoException) => {
      if (child.pid !== undefined) return;
      const isThere = error.code === "EACCES";
      onProblem(`${file}: ${isThere ? "cannot be run (no permission)" : "no such command"}`);
      resolve(isThere ? 126 : 127);
    });
    child.once("exit", (code, signal) =>
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal])),
    );
  });
  return {
    ended: ended.finally(async () => {
      stopPassing();
      if (child.pid !== undefined) await endLingering(descendants, systemClock);
    }),
    kill: () => {
      if (child.pid === undefined) return;
      signalAll(descendants, "SIGKILL");
      child.kill("SIGKILL");
    },
  };
}

function passSignals(child: ChildProcess, isOnTerminal: boolean): () => void {
  const names = PASSED_ON.filter((name) => !isOnTerminal || !FROM_TERMINALS.includes(name));
  const pass = (name: NodeJS.Signals) => {
    child.kill(name);
  };
  for (const name of names) process.on(name, pass);
  return () => {
    for (const name of names) process.off(name, pass);
  };
}
