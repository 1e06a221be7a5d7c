import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { constants } from "node:os";
import type { Clock } from "../../../kernel/clock.ts";
import { type Descendants, endDescendants, signalAll } from "../../../processes/guard.ts";
import { type StartFailure, startFailure } from "../../../processes/programs.ts";

/** The signals that are forwarded to the command, except on a terminal those that it sends to every process itself. */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR2"] as const;
const FROM_TERMINALS: readonly string[] = ["SIGINT", "SIGQUIT"];

export interface Child {
  /** Null if the command could not be started. */
  pid: number | null;
  /** Its process group; null if it shares the group of this process. */
  group: number | null;
  /** The exit code, as in a shell: 128 plus the number of a signal; 127 for no such command, 126 if it cannot run. */
  ended: Promise<number>;
  /** Ends the command and every process that it has started, at once. */
  kill(): void;
}

/**
 * Runs a command with the standard streams of this process, and forwards signals to it. After the command has ended, ends
 * every process that it started. On a terminal the command stays in the foreground process group, so that it can read
 * keys.
 */
export function runChild(
  command: readonly string[],
  options: {
    env: NodeJS.ProcessEnv;
    cwd: string;
    mark: string;
    clock: Clock;
    isOnTerminal: boolean;
    /** Called with the reason if the command could not be started. */
    onProblem: (line: string) => void;
  },
): Child {
  const { env, cwd, mark, clock, isOnTerminal, onProblem } = options;
  let receiver: ChildProcess | null = null;
  // The command may send a signal before `spawn` returns. The handlers must be there by then.
  const stopForwarding = forwardSignals((name) => receiver?.kill(name), isOnTerminal);
  const started = start(command, { cwd, env, stdio: "inherit", detached: !isOnTerminal });
  const failed = (failure: StartFailure): number => {
    onProblem(failure.message);
    return failure.exitCode;
  };
  if ("message" in started) {
    stopForwarding();
    return { pid: null, group: null, ended: Promise.resolve(failed(started)), kill: () => {} };
  }
  receiver = started;
  const { pid = null } = started;
  const descendants: Descendants = { group: isOnTerminal ? null : pid, mark };
  const ended = new Promise<number>((resolve) => {
    started.once("error", (error) => {
      if (pid === null) resolve(failed(startFailure(command[0] ?? "", cwd, error)));
    });
    started.once("exit", (code, signal) =>
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal])),
    );
  });
  return {
    pid,
    group: descendants.group,
    ended: ended.then(async (exitCode) => {
      stopForwarding();
      if (pid !== null) await endDescendants(descendants, clock);
      return exitCode;
    }),
    kill: () => {
      if (pid === null) return;
      signalAll(descendants, "SIGKILL");
      started.kill("SIGKILL");
    },
  };
}

/** Spawns the command. Node throws some failures and emits others as an event. */
function start([file = "", ...args]: readonly string[], options: SpawnOptions): ChildProcess | StartFailure {
  try {
    return spawn(file, args, options);
  } catch (error) {
    return startFailure(file, String(options.cwd), error as NodeJS.ErrnoException);
  }
}

/** Handles every signal, also those not forwarded: the command has received them already, and may continue. */
function forwardSignals(send: (name: NodeJS.Signals) => void, isOnTerminal: boolean): () => void {
  const pass = (name: NodeJS.Signals) => {
    if (!isOnTerminal || !FROM_TERMINALS.includes(name)) send(name);
  };
  for (const name of FORWARDED) process.on(name, pass);
  return () => {
    for (const name of FORWARDED) process.off(name, pass);
  };
}
