import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import { BIN, cleanEnvironment } from "../support/processes.ts";

const QUICK = resolve(import.meta.dirname, "quick-service.mjs");

/** Whether strace is here and may watch other processes. */
export const hasStrace =
  process.platform === "linux" &&
  spawnSync("strace", ["-qq", "-e", "trace=none", "true"], { stdio: "ignore" }).status === 0;

/** Where a system call is made: on the main thread, or on the one that touches files. */
export interface KillCall {
  thread: "main" | "files";
  call: string;
}

/**
 * How a service dies: so long after its start, before or after its Nth durable step (a sync, rename, removal or commit), or at
 * its Nth call of a kind.
 */
export type Kill =
  | { afterMs: number }
  | { step: number; after: boolean }
  | (KillCall & {
      when: number;
    });

export interface KilledService {
  child: ChildProcess;
  /** Its address; null when it died first. */
  ready: Promise<string | null>;
  exited: Promise<{ code: number | null; signal: string | null; stderr: string }>;
  end(signal?: "SIGKILL" | "SIGTERM"): void;
}

interface ServiceOptions {
  data: string;
  /** The file in which a quick service lists what it made. */
  generations: string;
  /** The number of this start on the data directory. */
  boot: number;
  /** Null leaves it alive. */
  kill: Kill | null;
  /** `imgbatch serve`, not the quick service. */
  isReal: boolean;
}

/** Starts a service on a data directory that dies as it is told to. */
export async function startKilledService(options: ServiceOptions): Promise<KilledService> {
  const { data, isReal, kill } = options;
  const service = isReal ? startReal(data, kill) : (await startQuick(options)).service;
  const afterMs = kill && "afterMs" in kill ? kill.afterMs : null;
  const timer = afterMs === null ? undefined : setTimeout(() => service.end(), afterMs);
  return { ...service, exited: service.exited.finally(() => clearTimeout(timer)) };
}

/** The quick service, whose file work all happens on one thread. It ends with the test. */
export async function startQuickService(directory: string) {
  const [data, generations] = [join(directory, "data"), join(directory, "generations.log")];
  const { service, fileThread } = await startQuick({ data, generations, boot: 1, kill: null });
  onTestFinished(async () => {
    service.end();
    await service.exited;
  });
  const url = await service.ready;
  const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
  const made = async () => (await readFile(generations, "utf8")).trim().split("\n");
  return { child: service.child, fileThread, url: url ?? "", key, generations: made };
}

async function startQuick({ data, generations, boot, kill }: Omit<ServiceOptions, "isReal">) {
  const stdio = ["pipe", "pipe", "pipe"] as const;
  const child = spawn(process.execPath, [QUICK], { env: environment(), stdio: [...stdio] });
  const { said, ...service } = watch(child);
  const { thread: fileThread } = (await said()) as { thread: number };
  if (kill && "call" in kill) {
    const thread = kill.thread === "main" ? child.pid : fileThread;
    const strace = spawn("strace", ["-p", String(thread), "-o", "/dev/null", ...injected(kill)], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    // It says on stderr that it is attached.
    await Promise.race([once(strace.stderr, "data"), once(strace, "close")]);
    strace.stderr.resume();
  }
  const die = kill && "step" in kill ? kill : null;
  child.stdin?.write(`${JSON.stringify({ data, generations, boot, die })}\n`);
  return { service: { ...service, ready: said().then((line) => line?.url ?? null) }, fileThread };
}

function startReal(data: string, kill: Kill | null): KilledService {
  const serve = [BIN, "serve", "--port", "0", "--data", data, "--log-level", "error"];
  const call = kill && "call" in kill ? kill : null;
  const [program, ...args] = call
    ? ["strace", "-f", "-qq", "-o", "/dev/null", ...injected(call), process.execPath, ...serve]
    : [process.execPath, ...serve];
  const stdio = ["ignore", "pipe", "pipe"] as const;
  const child = spawn(program, args, { env: environment(), stdio: [...stdio], detached: call !== null });
  const { said, ...service } = watch(child);
  // A program under strace dies with its group.
  const end: KilledService["end"] = (signal = "SIGKILL") => {
    if (call === null) child.kill(signal);
    else if (child.exitCode === null && child.signalCode === null) process.kill(-(child.pid ?? 0), signal);
  };
  return { ...service, end, ready: said().then((line) => line?.url ?? null) };
}

/** With one thread for files, the Nth call on it is the same call every time. */
const environment = () => cleanEnvironment({ UV_THREADPOOL_SIZE: "1" });

/** The arguments that let strace kill a program at a call. */
export const injected = ({ call, when }: KillCall & { when: number }) => [
  ...["-e", `trace=${call}`, "-e", `inject=${call}:signal=SIGKILL:when=${when}`],
];

function watch(child: ChildProcess) {
  let stderr = "";
  child.stderr?.on("data", (chunk) => {
    stderr = (stderr + chunk).slice(-4000);
  });
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
  const exited = once(child, "close").then(([code, signal]) => ({ code, signal, stderr }));
  // The answer to an order may be that the other end is dead.
  child.stdin?.on("error", () => {});
  return {
    child,
    exited,
    end: (signal: "SIGKILL" | "SIGTERM" = "SIGKILL") => void child.kill(signal),
    /** The next line as JSON; null when the child has ended. */
    said: async () => {
      const { value, done } = await lines.next();
      return done ? null : JSON.parse(value);
    },
  };
}
