import { EventEmitter } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { EXIT_CODES, type ExitName } from "../../src/contract/errors.ts";
import { type Cli, type CliOptions, type CliResult, createCli } from "../support/cli.ts";

type Result = Pick<CliResult, "code" | "stdout" | "json">;
type Way = (cli: Cli, json: string[]) => Promise<Result>;

/** The request for the state of a batch. */
const LOOK = /^GET .*imgbatch_\w+$/;

/** How a script meets each exit code: the command, and the things that happen meanwhile. */
const WAYS: Record<ExitName, Way> = {
  ok: (cli, json) => cli.here(["submit", "good.jsonl", ...json]),
  internal: (cli, json) => crashing(cli, 'throw new Error("boom")', json),
  usage: (cli, json) => cli.here(["submit", "wrong.jsonl", ...json]),
  auth: (cli, json) => cli.here(["list", ...json], { env: { IMGBATCH_API_KEY: "wrong" } }),
  someFailed: (cli, json) => cli.here(["submit", "some.jsonl", ...json]),
  noImages: (cli, json) => cli.here(["submit", "none.jsonl", ...json]),
  conflict: async (cli, json) => {
    await cli.here(["submit", "good.jsonl", "-o", "taken"]);
    return cli.here(["submit", "some.jsonl", "-o", "taken", ...json]);
  },
  temporary: (cli, json) => {
    cli.fake.fault(/^GET .*models/, { status: 500 });
    return cli.here(["models", ...json]);
  },
  money: (cli, json) => cli.here(["submit", "good.jsonl", "--max-cost", "0.01", ...json]),
  saving: async (cli, json) => {
    await writeFile(join(cli.cwd, "file"), "");
    return cli.here(["submit", "good.jsonl", "-o", "file/out", ...json]);
  },
  gone: (cli, json) => cli.here(["status", "imgbatch_gone", ...json]),
  timeout: (cli, json) => {
    cli.fake.options.statuses = ["running"];
    return cli.here(["submit", "good.jsonl", "--timeout", "600ms", ...json]);
  },
  interrupted: (cli, json) => interrupted(cli, "SIGINT", json),
  terminated: (cli, json) => interrupted(cli, "SIGTERM", json),
};

/** With `--json` in a process of its own. */
async function interrupted(cli: Cli, signal: NodeJS.Signals, json: string[]): Promise<Result> {
  if (json.length > 0) return signalled(cli, signal, json);
  cli.fake.options.statuses = ["running"];
  const signals = new EventEmitter();
  const ended = cli.here(["submit", "good.jsonl"], { signals });
  await expect.poll(() => cli.fake.count(LOOK)).toBeGreaterThan(0);
  signals.emit(signal, signal);
  return ended;
}

async function signalled(
  cli: Cli,
  signal: NodeJS.Signals,
  json: string[],
  options?: CliOptions,
): Promise<CliResult> {
  cli.fake.options.statuses = ["running"];
  const { child, ended } = cli.start(["submit", "good.jsonl", ...json], options);
  await expect.poll(() => cli.fake.count(LOOK)).toBeGreaterThan(0);
  child.kill(signal);
  return ended;
}

async function bench(): Promise<Cli> {
  const cli = await createCli({ failing: /bad/ });
  const files = {
    good: '{"prompt":"a"}\n{"prompt":"b"}',
    some: '{"prompt":"a"}\n{"prompt":"bad"}',
    none: '{"prompt":"bad"}',
    wrong: '{"promt":"a"}',
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(cli.cwd, `${name}.jsonl`), text);
  return cli;
}

it.each(Object.keys(WAYS) as ExitName[])(
  "[CLI-26] %s: the program ends with the code of the table, with and without --json",
  async (name) => {
    const { code: expected } = EXIT_CODES[name];
    const plain = await WAYS[name](await bench(), []);
    const json = await WAYS[name](await bench(), ["--json"]);
    expect([plain.code, json.code]).toEqual([expected, expected]);
    expect(json.json()).toMatchObject({ ok: expected === 0, exit_code: expected });
    expect(plain.stdout.startsWith("{")).toBe(false);
    if (expected !== 0) expect(json.json().error).toMatchObject({ code: expect.any(String) });
  },
);

/** Something that nobody awaits goes wrong in the middle of a command. */
async function crashing(cli: Cli, statement: string, json: string[]): Promise<CliResult> {
  await mkdir(join(cli.cwd, "preload"));
  const file = join(cli.cwd, "preload", "crash.mjs");
  await writeFile(file, `process.on("SIGUSR2", () => { ${statement} });`);
  return signalled(cli, "SIGUSR2", json, { env: { NODE_OPTIONS: `--import=${file}` } });
}
