import { rm } from "node:fs/promises";
import { resolve } from "node:path";
import { Option } from "commander";
import type { CommandResult, CommandSpec, Output } from "../cli/command.ts";
import { loadNamedCommands } from "../cli/commands/registry.ts";
import { makeEphemeralDirectory, serviceConfig } from "../cli/connect/service-config.ts";
import type { GlobalOptions } from "../cli/options.ts";
import { resultDocument, toImgbatchError } from "../cli/output/finish.ts";
import { runInvocation, typedIn } from "../cli/run-cli.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { systemClock } from "../kernel/clock.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { safeLine } from "../kernel/hide-keys.ts";
import { createLog } from "../service/pino-log.ts";
import { startService as startServiceHere } from "../service/start-service.ts";
import type {
  CommonOptions,
  GenerateOptions,
  ImageResult,
  Prompt,
  RunResult,
  Service,
  ServiceOptions,
  SubmitOptions,
} from "./imgbatch.d.cts";

export { ImgbatchError };

/** See `imgbatch.d.cts`. */
export async function submit(
  prompts: string | readonly (string | Prompt)[],
  options: SubmitOptions = {},
): Promise<RunResult> {
  if (typeof prompts === "string") return (await runCommand("submit", [prompts], options)) as RunResult;
  const lines = prompts.map((prompt) => JSON.stringify(typeof prompt === "string" ? { prompt } : prompt));
  const typed = { ...options, format: "jsonl" };
  return (await runCommand("submit", ["-"], typed, lines.join("\n"))) as RunResult;
}

/** See `imgbatch.d.cts`. */
export async function generate(prompt: string, options: GenerateOptions = {}): Promise<ImageResult> {
  // "-" would be standard input.
  return (await runCommand("generate", ["-"], options, prompt)) as ImageResult;
}

/** Runs a command as the command line does, and returns the document of `--json`. Throws what the command throws. */
async function runCommand(
  name: "submit" | "generate",
  words: string[],
  given: CommonOptions,
  stdin = "",
): Promise<unknown> {
  const {
    baseUrl,
    apiKeyFile,
    data,
    config,
    cwd = process.cwd(),
    signal,
    onNote,
    onEvent,
    ...options
  } = given;
  const [spec] = (await loadNamedCommands([name])).filter((each) => each.name === name);
  if (spec === undefined) throw new ImgbatchError("INTERNAL", `There is no command ${name}.`);
  const global: GlobalOptions = {
    json: true,
    quiet: false,
    verbose: false,
    color: false,
    progress: "none",
    apiKeyStdin: false,
    baseUrl,
    apiKeyFile,
    data,
    config,
  };
  const note = (line: string) => onNote?.(safeLine(line));
  const output: Output = {
    note,
    warn: note,
    detail() {},
    progress() {},
    settle() {},
    annotate() {},
    event: (event) => onEvent?.({ ...event }),
  };
  const stop = new AbortController();
  const interrupt = () => stop.abort(new ImgbatchError("INTERRUPTED"));
  signal?.addEventListener("abort", interrupt, { once: true });
  if (signal?.aborted) interrupt();
  const invocation = {
    kind: "command",
    path: name,
    spec,
    arguments: words,
    options: typedOptions(spec, options),
    global,
  } as const;
  try {
    const result: CommandResult = await runInvocation(invocation, {
      argv: [name, ...words],
      terminal: { cwd, stdin: textOf(stdin), loadView: noView, stderr: { isTTY: false, write() {} } },
      clock: systemClock,
      output,
      results: { isForPeople: false, columns: 80, line() {}, closed: new AbortController().signal },
      watch: { signal: stop.signal, stop() {}, countPaid() {}, abort: (reason) => stop.abort(reason) },
    });
    return resultDocument(result);
  } catch (error) {
    throw toImgbatchError(error);
  } finally {
    signal?.removeEventListener("abort", interrupt);
  }
}

async function* textOf(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

const noView = () => Promise.reject(new ImgbatchError("INTERNAL", "A program has no live view."));

/**
 * Returns options of a program as the parser of the command line would: texts, and true or false for flags. Throws `USAGE` for a
 * name that the command does not have, and for a value of another kind.
 */
function typedOptions({ name: command, options: table = {} }: CommandSpec, given: Record<string, unknown>) {
  const known = new Map<string, { option: Option; isList: boolean }>();
  const typed: Record<string, unknown> = {};
  for (const { flags, repeatable = false } of Object.values(table)) {
    const option = new Option(flags);
    const name = option.attributeName();
    if (!known.has(name)) known.set(name, { option, isList: repeatable });
  }
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    const spec = known.get(name);
    if (spec === undefined) {
      const names = [...known.keys()];
      const near = didYouMean(
        name,
        names.map((each) => each.toLowerCase()),
      );
      const meant = names.find((each) => each.toLowerCase() === near);
      const advice = meant === undefined ? "" : ` Did you mean ${meant}?`;
      throw new ImgbatchError("USAGE", `${name}: ${command} has no such option.${advice}`, { param: name });
    }
    typed[name] = typedValue(name, value, spec);
  }
  return typedIn(table, typed);
}

function typedValue(name: string, value: unknown, { option, isList }: { option: Option; isList: boolean }) {
  const wrong = (right: string) => new ImgbatchError("USAGE", `${name}: must be ${right}`, { param: name });
  const isText = (each: unknown) => typeof each === "string" || typeof each === "number";
  if (!option.required && !option.optional) {
    if (typeof value !== "boolean") throw wrong("true or false");
    return value;
  }
  if (isList) {
    if (!Array.isArray(value) || !value.every(isText)) throw wrong("a list of texts");
    return value.map(String);
  }
  if (!isText(value)) throw wrong("a text or a number");
  return String(value);
}

/** See `imgbatch.d.cts`. */
export async function startService(options: ServiceOptions = {}): Promise<Service> {
  const {
    port = 0,
    host = "127.0.0.1",
    data,
    config,
    upstream,
    vendor,
    simulate,
    test = false,
    cwd = process.cwd(),
    onNote,
  } = options;
  const isOwn = data === undefined;
  let directory: string | null = null;
  const removeOwn = async () => {
    if (isOwn && directory !== null) await rm(directory, { recursive: true, force: true, maxRetries: 3 });
  };
  try {
    const context = { cwd, global: { config } as GlobalOptions, options: { upstream, vendor, simulate } };
    const read = serviceConfig(context, { mayLackKeys: true });
    directory = isOwn ? await makeEphemeralDirectory("serve", systemClock.nowMs()) : resolve(cwd, data);
    const log = createLog({ level: "warn", forPeople: true, write: (line) => onNote?.(line.trimEnd()) });
    const start = { config: read, dataDirectory: directory, address: { host, port }, workers: true };
    const service = await startServiceHere({ ...start, isForTests: test, log });
    const close = async (graceMs = 0) => {
      try {
        await service.close(graceMs);
      } finally {
        await removeOwn();
      }
    };
    return { url: service.url, apiKey: service.credentials.api_key, data: directory, close };
  } catch (error) {
    await removeOwn();
    throw toImgbatchError(error);
  }
}
