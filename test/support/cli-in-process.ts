import { EventEmitter } from "node:events";
import { readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { onTestFinished, vi } from "vitest";
import { runCli } from "../../src/cli/run-cli.ts";
import { type FakeNative, startFakeNative } from "./fake-native.ts";
import { FAKE_KEY } from "./fake-service.ts";
import { allowKeyFile } from "./secrets.ts";
import { tempDir } from "./temp-dir.ts";

export interface InProcessResult {
  code: number;
  stdout: string;
  stderr: string;
  /** The one document of `--json`; throws when stdout is anything else. */
  json(): Record<string, unknown> & { error?: { code: string; message: string; details?: string[] } };
}

export interface InProcessCli {
  fake: FakeNative;
  cwd: string;
  run(args: readonly string[], options?: { stdin?: string | Buffer }): Promise<InProcessResult>;
  /** Sends the signal to the command that runs. */
  signal(name: "SIGINT" | "SIGTERM"): void;
  path(name: string): string;
  /** The names in a directory, hidden files too. */
  list(dir?: string): string[];
}

/** Lets commands in this process retry at once until the end of the test: the pause before a retry is a random part of its longest. */
export function retryAtOnce(): void {
  vi.spyOn(Math, "random").mockReturnValue(0);
}

/** The command line inside the test's own process, which spares the start of one, talking to a fake native service. */
export async function createInProcessCli(): Promise<InProcessCli> {
  const fake = await startFakeNative();
  onTestFinished(() => fake.close());
  retryAtOnce();
  const cwd = await tempDir();
  const keyDir = await tempDir();
  const keyFile = join(keyDir, "key");
  await writeFile(keyFile, FAKE_KEY);
  allowKeyFile(keyFile);
  const service = ["--base-url", fake.url, "--api-key-file", keyFile, "--data", join(keyDir, "data")];
  let signals = new EventEmitter();
  const run = (args: readonly string[], { stdin = "" }: { stdin?: string | Buffer } = {}) => {
    signals = new EventEmitter();
    return runInProcess([...args, ...service], { cwd, stdin, signals });
  };
  return {
    fake,
    cwd,
    run,
    signal: (name) => void signals.emit(name, name),
    path: (name) => join(cwd, name),
    list: (dir = ".") => readdirSync(join(cwd, dir)).sort(),
  };
}

/** Runs the command line inside the test's own process. */
export async function runInProcess(
  args: readonly string[],
  {
    cwd,
    stdin = "",
    signals = new EventEmitter(),
  }: { cwd: string; stdin?: string | Buffer; signals?: EventEmitter },
): Promise<InProcessResult> {
  const [stdout, stderr] = [sink(), sink()];
  const code = await runCli(args, {
    stdin: (async function* () {
      yield Buffer.from(stdin);
    })(),
    stdout: stdout.stream,
    stderr: stderr.stream,
    cwd,
    signals: signals as unknown as NodeJS.Process,
    exit: (exitCode) => {
      throw new Error(`exit ${exitCode}`);
    },
    loadView: () => import("../../src/dashboard/show.tsx"),
  });
  return { code, stdout: stdout.text(), stderr: stderr.text(), json: () => JSON.parse(stdout.text()) };
}

function sink(): { stream: NodeJS.WriteStream; text: () => string } {
  let text = "";
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      text += chunk;
      done();
    },
  });
  return { stream: stream as unknown as NodeJS.WriteStream, text: () => text };
}

/** Runs the command line inside the test's own process, on a terminal whose person answers so. */
export async function runOnTerminal(answer: string, args: readonly string[], cwd: string) {
  let stderr = "";
  const stream = (isTTY: boolean, write: (text: string) => void) => {
    const out = Object.assign(new EventEmitter(), { isTTY, columns: 0, hasColors: () => false });
    return Object.assign(out, {
      write: (text: string, done?: () => void) => {
        write(text);
        if (typeof done === "function") done();
        return true;
      },
    }) as unknown as NodeJS.WriteStream;
  };
  const stdin = (async function* () {
    yield Buffer.from(answer);
  })();
  const code = await runCli([...args, "--progress", "none"], {
    stdin: Object.assign(stdin, { isTTY: true }),
    stdout: stream(false, () => {}),
    stderr: stream(true, (text) => {
      stderr += text;
    }),
    cwd,
    signals: new EventEmitter() as unknown as NodeJS.Process,
    exit: (exitCode) => {
      throw new Error(`exit ${exitCode}`);
    },
    loadView: () => import("../../src/dashboard/show.tsx"),
  });
  return { code, stderr };
}
