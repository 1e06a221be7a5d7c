import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { constants } from "node:os";
import type { Clock } from "../../../kernel/clock.ts";
import { type Descendants, endDescendants, signalAll } from "./end-descendants.ts";
import { type StartFailure, startFailure } from "./start-failure.ts";

/** Passed on to the command. Those that a terminal sends to everything in it are not passed on there. */
const PASSED_ON = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR2"] as const;
const FROM_TERMINALS: readonly string[] = ["SIGINT", "SIGQUIT"];

export interface Child {
  /** Null when it could not be started. */
  pid: number | null;
  /** Its process group; null when it shares that of this process. */
  group: number | null;
  /** The exit code as a shell tells it: of a signal 128 and its number; 127 for no such command, 126 for one that cannot run. */
  ended: Promise<number>;
  /** Ends it and all that it has started, at once. */
  kill(): void;
}

/**
 * Runs a command on this process's own standard streams and passes signals on to it: as long as it lives, it alone
 * decides what they mean. When it has ended, so has everything that it started. On a terminal it stays in the
 * terminal's group, so that it can read the keys.
 */
export function runChild(
  command: readonly string[],
  options: {
    env: NodeJS.ProcessEnv;
    cwd: string;
    mark: string;
    clock: Clock;
    isOnTerminal: boolean;
    /** Told why it could not be started. */
    onProblem: (line: string) => void;
  },
): Child {
  const { env, cwd, mark, clock, isOnTerminal, onProblem } = options;
  const started = start(command, { cwd, env, stdio: "inherit", detached: !isOnTerminal });
  const failed = (failure: StartFailure): number => {
    onProblem(failure.message);
    return failure.exitCode;
  };
  if ("message" in started)
    return { pid: null, group: null, ended: Promise.resolve(failed(started)), kill: () => {} };
  const { pid = null } = started;
  const descendants: Descendants = { group: isOnTerminal ? null : pid, mark };
  const stopPassing = passSignals(started, isOnTerminal);
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
      stopPassing();
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

/** Some failures are thrown, others are told as an event. */
function start([file = "", ...args]: readonly string[], options: SpawnOptions): ChildProcess | StartFailure {
  try {
    return spawn(file, args, options);
  } catch (error) {
    return startFailure(file, String(options.cwd), error as NodeJS.ErrnoException);
  }
}

/** A signal that is not passed on is taken all the same: the command has it already, and may go on. */
function passSignals(child: ChildProcess, isOnTerminal: boolean): () => void {
  const pass = (name: NodeJS.Signals) => {
    if (!isOnTerminal || !FROM_TERMINALS.includes(name)) child.kill(name);
  };
  for (const name of PASSED_ON) process.on(name, pass);
  return () => {
    for (const name of PASSED_ON) process.off(name, pass);
  };
}
