import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { EventEmitter } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { vi } from "vitest";
import { retryAtOnce, runInProcess } from "./cli-in-process.ts";
import { FAKE_KEY, type FakeOptions, type FakeService, startFakeService } from "./fake-service.ts";
import { allowKeyFile, watchEnvironment, watchText } from "./secrets.ts";
import { tempDir } from "./temp-dir.ts";

const BIN = fileURLToPath(new URL("../../bin/imgbatch.cjs", import.meta.url));

export interface CliResult {
  code: number | null;
  stdout: string;
  stderr: string;
  /** The one document of `--json`; throws when stdout is anything else. */
  json(): Record<string, unknown> & { error?: { code: string; message: string; details?: string[] } };
}

export interface Cli {
  fake: FakeService;
  cwd: string;
  run(args: readonly string[], options?: CliOptions): Promise<CliResult>;
  start(args: readonly string[], options?: CliOptions): RunningCli;
  /**
   * The same inside the test's own process: quicker, for what the process itself has no part in. With `env` the
   * service and the key stand in the environment; without, in options that follow `args`. `signals` emits what would be
   * sent to the process.
   */
  here(
    args: readonly string[],
    options?: { stdin?: string; env?: Record<string, string>; signals?: EventEmitter },
  ): Promise<CliResult>;
}

export interface CliOptions {
  /** Null: standard input stays open, and nothing comes. */
  stdin?: string | null;
  env?: Record<string, string>;
}

export interface RunningCli {
  child: ChildProcessWithoutNullStreams;
  ended: Promise<CliResult>;
}

/** The real program in a process of its own, talking to a fake service. */
export async function createCli(options: FakeOptions = {}): Promise<Cli> {
  const fake = await startFakeService({ statuses: ["completed"], ...options });
  retryAtOnce();
  const keyDir = await tempDir();
  const children = new Set<ChildProcessWithoutNullStreams>();
  const cwd = await tempDir(async () => {
    for (const child of children) child.kill("SIGKILL");
    await fake.close();
  });
  const variables = (more: Record<string, string>): Record<string, string> => {
    const data = join(cwd, "data");
    const service = { IMGBATCH_BASE_URL: fake.url, IMGBATCH_API_KEY: FAKE_KEY, IMGBATCH_DATA: data };
    const all = { HOME: cwd, ...service, ...more };
    watchEnvironment(all);
    return all;
  };
  const start = (args: readonly string[], { stdin = "", env = {} }: CliOptions = {}): RunningCli => {
    const environment = { PATH: process.env.PATH, ...variables(env) };
    const child = spawn(process.execPath, [BIN, ...args], { cwd, env: environment });
    children.add(child);
    child.stdin.on("error", () => {});
    if (stdin !== null) child.stdin.end(stdin);
    const text = { stdout: "", stderr: "" };
    child.stdout.on("data", (data) => {
      text.stdout += data;
    });
    child.stderr.on("data", (data) => {
      text.stderr += data;
    });
    const ended = new Promise<CliResult>((resolve) => {
      child.on("close", (code) => {
        children.delete(child);
        watchText(text.stdout, `stdout of ${args[0]}`);
        watchText(text.stderr, `stderr of ${args[0]}`);
        resolve({ code, ...text, json: () => JSON.parse(text.stdout) });
      });
    });
    return { child, ended };
  };
  const here: Cli["here"] = async (args, { stdin = "", env, signals = new EventEmitter() } = {}) => {
    if (env !== undefined) {
      for (const [name, value] of Object.entries(variables(env))) vi.stubEnv(name, value);
      return runInProcess(args, { cwd, stdin, signals }).finally(() => vi.unstubAllEnvs());
    }
    const keyFile = join(keyDir, "key");
    allowKeyFile(keyFile);
    await writeFile(keyFile, FAKE_KEY);
    const service = ["--base-url", fake.url, "--api-key-file", keyFile, "--data", join(keyDir, "data")];
    return runInProcess([...args, ...service], { cwd, stdin, signals });
  };
  return { fake, cwd, start, here, run: (args, runOptions) => start(args, runOptions).ended };
}
