import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import { watchEnvironment, watchText } from "./secrets.ts";

const ROOT = resolve(import.meta.dirname, "../..");
export const BIN = resolve(ROOT, "bin/imgbatch.cjs");

/** The environment of a child: ours without anything that would lead it to another service. */
export function cleanEnvironment(extra: Record<string, string> = {}): NodeJS.ProcessEnv {
  const { IMGBATCH_BASE_URL: _u, IMGBATCH_API_KEY: _k, IMGBATCH_DATA: _d, ...rest } = process.env;
  return { ...rest, NO_COLOR: "1", ...extra };
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export interface Running {
  child: ChildProcess;
  exited: Promise<Exit>;
  /** The next line on standard output. */
  line(): Promise<string>;
}

/** Starts a Node program; it is killed at the end of the test if it still runs. */
export function startNode(args: string[], options: { cwd?: string; env?: NodeJS.ProcessEnv } = {}): Running {
  const child = spawn(process.execPath, args, {
    cwd: options.cwd ?? ROOT,
    env: options.env ?? cleanEnvironment(),
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk) => {
    stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  watchEnvironment(options.env ?? {});
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exited = once(child, "close").then(([code, signal]) => ({ code, signal, stdout, stderr }) as Exit);
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await exited;
    const what = args.filter((arg) => /^[a-z-]+$/.test(arg)).join(" ");
    watchText(stderr, `stderr of ${what}`);
    if (!maySayKey(args)) watchText(stdout, `stdout of ${what}`);
  });
  return {
    child,
    exited,
    line: async () => {
      const { value, done } = await lines.next();
      if (done) throw new Error(`the program ended: ${JSON.stringify(await exited)}`);
      return value;
    },
  };
}

/** Making a key shows it, once; and programs of the tests tell them what they need. */
function maySayKey(args: readonly string[]): boolean {
  return args[0] !== BIN || args.slice(1, 4).join(" ") === "admin keys create";
}

/** Runs the command line to its end. */
export function imgbatch(
  args: string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv } = {},
): Promise<Exit> {
  return startNode([BIN, ...args], options).exited;
}
