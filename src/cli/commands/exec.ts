import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { constants } from "node:os";
import { resolve } from "node:path";
import type { Config } from "../../config/schema.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { environmentWith, serviceVariables } from "../../environment.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { microsToDecimal } from "../../kernel/money.ts";
import { endDescendants, MARK, signalAll, startGuard } from "../../processes/guard.ts";
import { startFailure } from "../../processes/programs.ts";
import { createLog, LOG_LEVELS } from "../../service/pino-log.ts";
import { type LocalService, startService } from "../../service/start-service.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { makeEphemeralDirectory, serviceConfig } from "../connect/service-config.ts";
import * as option from "../options.ts";
import { nextCommand } from "../output/next-step.ts";
import { paidRequestsNote } from "../terminal.ts";
import {
  addressOptions,
  logLevelOption,
  simulateOption,
  upstreamOption,
  vendorOption,
} from "./shared-options.ts";

const options = {
  ...addressOptions,
  port: { ...addressOptions.port, description: "the port to listen on", default: "a free one" },
  upstream: upstreamOption,
  vendor: vendorOption,
  replay: option.text({
    flags: "--replay <dir>",
    description: "answer requests that were recorded there before, free of charge, without upstream and key",
    default: "replay of the configuration",
  }),
  record: option.flag({
    flags: "--record",
    description:
      "with --replay: ask the upstream for what is missing there, and keep its images and refusals",
  }),
  maxCostMicroUsd: option.usd({
    flags: "--max-cost <usd>",
    description: "with a paid upstream: all that the command may spend",
    default: "0",
  }),
  simulate: simulateOption,
  graceMs: option.duration({
    flags: "--grace <time>",
    description: "how long running items may take after the command has ended",
    default: "0s",
  }),
  logLevel: logLevelOption(LOG_LEVELS, "warn"),
};

export const command = defineCommand({
  arguments: [{ name: "<command...>", description: "the command and its arguments, after --" }],
  options,
  examples: [
    "imgbatch exec -- npm test",
    "imgbatch exec --upstream google --max-cost 2 -- npm test",
    "imgbatch exec --upstream google --replay test/pictures -- npm test",
    "imgbatch exec --simulate fail=0.1,seed=7 -- ./nightly.sh",
  ],
  notes: [
    "The command finds address and key in IMGBATCH_BASE_URL and IMGBATCH_API_KEY, and in the variables that the vendors' libraries read: OPENAI_BASE_URL, OPENAI_API_KEY, GOOGLE_GEMINI_BASE_URL, GEMINI_API_KEY (GOOGLE_API_KEY is removed). Signals are passed on. The exit code is the command's: after a signal 128 plus its number, 127 when there is no such command, 126 when it cannot be run.",
    "Even after kill -9, the service's directory and every process of the command's group are removed; on Linux also processes that have left the group, unless they have cleared their environment.",
    "Tests can order faults at POST /imgbatch/test/faults of the service, and read at GET /imgbatch/test/requests what the command has asked for. The API reference describes both.",
    "With --replay, a request that is not recorded is an error that names it. With --record, the upstream is asked for it, and --max-cost pays for nothing else. The directory belongs into a repository.",
    "Images of a paid upstream cost real money: without --max-cost the command gets none of them. With --data, the account of that directory pays; `imgbatch admin accounts top-up` adds money to it.",
  ],
  json: false,
  exits: ["auth", "conflict"],
  run,
});

/** `imgbatch exec`: runs a service for the time of one command. Writes nothing to standard output itself. */
async function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { cwd, clock, global, options, output, signal, takeSignals } = context;
  const { maxCostMicroUsd: budgetMicroUsd, record: records } = options;
  if (budgetMicroUsd !== undefined && global.data !== undefined && !records) {
    const message = `--max-cost is for a service with a data directory of its own, not with --data: there the account pays.`;
    const advice = `${nextCommand(global, "admin", "accounts", "top-up", "default", microsToDecimal(budgetMicroUsd))}, or leave out --data`;
    throw new ImgbatchError("USAGE", message, { param: "--max-cost", advice });
  }
  const config = serviceConfig(context, { mayLackKeys: false, records });
  const service = await startOwnService({
    config,
    // A recording counts its own costs, since what was recorded before is free.
    ...(records
      ? { budgetMicroUsd: 0, recordingMicroUsd: budgetMicroUsd ?? 0 }
      : { budgetMicroUsd: budgetMicroUsd ?? 0, recordingMicroUsd: 0 }),
    dataDirectory: global.data,
    address: { host: options.host ?? "127.0.0.1", port: options.port ?? 0 },
    graceMs: options.graceMs ?? 0,
    nowMs: clock.nowMs(),
    note: output.note,
    log: createLog({
      level: options.logLevel ?? "warn",
      forPeople: true,
      write: (line) => output.note(line.trimEnd()),
    }),
  });
  const mark = randomUUID();
  const leftovers = { mark, directory: service.isOwn ? service.dataDirectory : null };
  const guard = startGuard();
  let child: Child | null = null;
  const onExit = () => {
    child?.kill();
    service.remove();
  };
  process.once("exit", onExit);
  try {
    guard.update([leftovers]);
    signal.throwIfAborted();
    const inherited = environmentWith({});
    const variables = serviceVariables(service, inherited.NO_PROXY ?? inherited.no_proxy);
    output.detail(`${service.url} (data: ${service.dataDirectory})`);
    child = runChild(context.arguments, {
      cwd,
      env: environmentWith({ ...variables, [MARK]: mark }),
      mark,
      clock,
      isOnTerminal: [process.stdin, process.stdout, process.stderr].some((stream) => stream.isTTY),
      onProblem: output.note,
    });
    // `runChild` handles signals by now. Without any handler, a signal would end this process.
    takeSignals();
    const { pid, group } = child;
    if (pid !== null) guard.update([{ ...leftovers, child: { pid, group } }]);
    return { exitCode: await child.ended, json: null };
  } finally {
    try {
      await service.close();
    } finally {
      process.off("exit", onExit);
      await guard.dismiss();
    }
  }
}

/** A service in this process, for the time of one command. */
interface OwnService {
  url: string;
  apiKey: string;
  dataDirectory: string;
  /** Whether the directory was created for this service, and is removed with it. */
  isOwn: boolean;
  /** Stops the service, and removes its directory unless the caller named it. */
  close(): Promise<void>;
  /** Removes the directory synchronously, for an exit handler. */
  remove(): void;
}

/** Starts the service on a new directory, or on `dataDirectory`, which is never removed. */
async function startOwnService(options: {
  config: Config;
  dataDirectory: string | undefined;
  /** See `ServiceOptions`. */
  budgetMicroUsd: number;
  recordingMicroUsd: number;
  address: { host: string; port: number };
  graceMs: number;
  nowMs: number;
  log: Log;
  note(line: string): void;
}): Promise<OwnService> {
  const { config, address, graceMs, log, budgetMicroUsd, recordingMicroUsd } = options;
  const isOwn = options.dataDirectory === undefined;
  const dataDirectory = resolve(
    options.dataDirectory ?? (await makeEphemeralDirectory("exec", options.nowMs)),
  );
  let service: LocalService;
  try {
    service = await startService({
      config,
      dataDirectory,
      address,
      log,
      workers: true,
      isForTests: true,
      isThrowaway: isOwn,
      budgetMicroUsd,
      recordingMicroUsd,
    });
  } catch (error) {
    if (isOwn) await rm(dataDirectory, { recursive: true, force: true });
    throw error;
  }
  const removeOwn = async () => {
    if (!isOwn) return;
    const removed = rm(dataDirectory, { recursive: true, force: true, maxRetries: 3 });
    await removed.catch(({ message }) => options.note(`${dataDirectory} cannot be removed: ${message}`));
  };
  return {
    url: service.url,
    apiKey: service.credentials.api_key,
    dataDirectory,
    isOwn,
    close: async () => {
      const note = paidRequestsNote(service.queue().paid, "Ctrl-C");
      if (note !== null) options.note(note);
      try {
        await service.close(graceMs);
      } finally {
        await removeOwn();
      }
    },
    remove: () => {
      try {
        if (isOwn) rmSync(dataDirectory, { recursive: true, force: true });
      } catch {
        // The process ends; nobody can be told any more.
      }
    },
  };
}

/** The signals that are forwarded to the command, except on a terminal those that it sends to every process itself. */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR2"] as const;
const FROM_TERMINALS: readonly string[] = ["SIGINT", "SIGQUIT"];

interface Child {
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
  // Windows has no process groups: a detached command would get a window of its own.
  const hasGroup = !isOnTerminal && process.platform !== "win32";
  const started = start(command, { cwd, env, stdio: "inherit", detached: hasGroup });
  const failed = (failure: ReturnType<typeof startFailure>): number => {
    onProblem(failure.message);
    return failure.exitCode;
  };
  if ("message" in started) {
    stopForwarding();
    return { pid: null, group: null, ended: Promise.resolve(failed(started)), kill: () => {} };
  }
  receiver = started;
  const { pid = null } = started;
  const descendants = { group: hasGroup ? pid : null, mark };
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
function start(
  [file = "", ...args]: readonly string[],
  options: SpawnOptions,
): ChildProcess | ReturnType<typeof startFailure> {
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
