import { EXIT_CODES, ImgbatchError } from "../contract/errors.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { safeLine, safeResultLine } from "../kernel/hide-keys.ts";
import { readVersion } from "../kernel/package-file.ts";
import { endItsWork } from "../kernel/signals.ts";
import type { CommandContext, CommandResult, CommandSpec, Output } from "./command.ts";
import { loadCommands, loadNamedCommands } from "./commands/registry.ts";
import { helpDocument } from "./help-document.ts";
import { createFinish, toImgbatchError } from "./output/finish.ts";
import { NOTHING_TYPED } from "./output/next-step.ts";
import { createOutput, openEventLog } from "./output/output.ts";
import { commandIn, readCommandLine } from "./parse.ts";
import { askOn, chunksOf, guardStreams, readAll, type Terminal, watchSignals } from "./terminal.ts";

type Invocation = ReturnType<typeof readCommandLine>;
type CommandInvocation = Extract<Invocation, { kind: "command" }>;
type Finish = ReturnType<typeof createFinish>;
type ErrorStyle = NonNullable<Parameters<Finish["fail"]>[1]>;
type Results = CommandContext["results"];

/** Runs a command line to its end and returns the exit code. Never throws. */
export async function runCli(argv: readonly string[], terminal: Terminal): Promise<number> {
  const streams = guardStreams(terminal);
  const { finish, code } = await runArguments(argv, terminal, streams.closed);
  try {
    await streams.requireWritten();
    return code;
  } catch (error) {
    return finish.fail(error);
  }
}

async function runArguments(
  argv: readonly string[],
  terminal: Terminal,
  closed: AbortSignal,
): Promise<{ finish: Finish; code: number }> {
  let eventsOnStdout = false;
  const isJson = isTyped(argv, "--json");
  const finish = createFinish(terminal, { json: isJson, lines: () => !eventsOnStdout, argv });
  let guessed = guessStyle(argv, []);
  // An error outside every await still gets its document and its exit code.
  terminal.signals.on("uncaughtException", (error) => {
    if (!endItsWork(error)) terminal.exit(finish.fail(error, guessed));
  });

  let invocation: Invocation;
  try {
    const table = await loadNamedCommands(argv);
    guessed = guessStyle(argv, table);
    invocation = readCommandLine(argv, table);
  } catch (error) {
    return { finish, code: finish.fail(error, guessed) };
  }
  if (invocation.kind === "text") {
    const { text, helpOf } = invocation;
    if (!isJson || helpOf === null) return { finish, code: finish.text(text) };
    return { finish, code: finish.done({ json: helpDocument(helpOf, await loadCommands()) }) };
  }
  if (invocation.kind === "help") {
    if (isJson) return { finish, code: finish.fail(new ImgbatchError("USAGE", "Name a command."), guessed) };
    terminal.stderr.write(invocation.text);
    return { finish, code: EXIT_CODES.usage.code };
  }
  eventsOnStdout = invocation.global.events === "-";
  try {
    return { finish, code: await runCommand(invocation, { argv, terminal }, finish, closed) };
  } catch (error) {
    return { finish, code: finish.fail(error, styleOf(invocation)) };
  }
}

function styleOf({ global, spec, path, options, arguments: words }: CommandInvocation): ErrorStyle {
  const { paysAgain = false, resumes = false } = spec;
  return { ...global, typed: { path, options, arguments: words, where: global, paysAgain, resumes } };
}

/** The error style before parsing succeeded, guessed from the raw arguments. */
function guessStyle(argv: readonly string[], table: readonly CommandSpec[]): ErrorStyle {
  return {
    verbose: false,
    quiet: isTyped(argv, "-q", "--quiet"),
    color: !isTyped(argv, "--no-color"),
    typed: { ...NOTHING_TYPED, path: commandIn(argv, table) },
  };
}

async function runCommand(
  invocation: CommandInvocation,
  { argv, terminal }: { argv: readonly string[]; terminal: Terminal },
  finish: Finish,
  closed: AbortSignal,
): Promise<number> {
  const { global } = invocation;
  const { clock = systemClock } = terminal;
  const lines = await createOutput(global, terminal.stderr, clock);
  const events = openEventLog(global.events, terminal, clock, lines.note);
  const command = terminal.command ?? ((text: string) => terminal.stderr.write(text));
  const output: Output = {
    ...lines,
    annotate: (line) => {
      if (!global.quiet) command(`${safeLine(line)}\n`);
    },
    event: events.write,
    warn: (line) => {
      lines.note(line);
      events.write({ event: "warning", message: line });
    },
  };
  const failed = (thrown: unknown) => {
    lines.settle();
    const code = finish.fail(thrown, styleOf(invocation));
    const { code: errorCode, message } = toImgbatchError(thrown);
    writeRunEnd(events, code, { code: errorCode, message });
    return code;
  };
  const watch = watchSignals(terminal, failed);
  events.write({ event: "run_started", command: invocation.path, version: readVersion() });
  try {
    const results = resultsOf(terminal, global, closed);
    const result = await work(invocation, { argv, terminal, clock, output, results, watch });
    lines.settle();
    const error = errorOf(result);
    writeRunEnd(events, result.exitCode ?? EXIT_CODES.ok.code, error);
    // `--quiet` left out the lines that report the failure.
    if (global.quiet && error !== null) terminal.stderr.write(`error: ${safeLine(error.message)}\n`);
    const code = finish.done(result);
    if (result.next != null) lines.note(`next: ${result.next}`);
    return code;
  } catch (error) {
    return failed(error);
  } finally {
    watch.stop();
    events.close();
  }
}

/** The options that `requireReportPaths` checks. */
const REPORT_OPTIONS = ["junit", "markdown", "open"];

async function work(
  { spec, options, global, arguments: args }: CommandInvocation,
  process: {
    argv: readonly string[];
    terminal: Terminal;
    clock: Clock;
    output: Output;
    results: Results;
    watch: ReturnType<typeof watchSignals>;
  },
): Promise<CommandResult> {
  const { run } = spec;
  if (run === undefined)
    throw new ImgbatchError("INTERNAL", `The command ${spec.name} has no implementation.`);
  const { argv, terminal, clock, output, results, watch } = process;
  if (REPORT_OPTIONS.some((name) => options[name] !== undefined)) {
    const { requireReportPaths } = await import("./output/reports.ts");
    await requireReportPaths(options, terminal.cwd);
  }
  return run({
    global,
    options,
    arguments: args,
    typed: argv,
    cwd: terminal.cwd,
    clock,
    beganMs: clock.nowMs(),
    signal: watch.signal,
    takeSignals: watch.stop,
    output,
    results,
    stdin: (signal = watch.signal) => chunksOf(terminal.stdin, signal),
    readStdin: (signal = watch.signal) => readAll(terminal.stdin, signal),
    ask: askOn(terminal),
    loadView: terminal.loadView,
    connect: async (needs, signal = watch.signal) => {
      const { openService } = await import("./connect/connect.ts");
      const connection = await openService(global, needs, {
        output,
        signal,
        get stdin() {
          return terminal.stdin;
        },
        cwd: terminal.cwd,
      });
      if (connection.kind !== "embedded") return connection;
      const { failed, paidRequests } = connection;
      watch.countPaid(paidRequests);
      failed.addEventListener("abort", () => watch.abort(failed.reason), { once: true });
      return connection;
    },
  });
}

const DEFAULT_COLUMNS = 80;

function resultsOf({ stdout }: Terminal, global: CommandInvocation["global"], closed: AbortSignal): Results {
  const isTaken = global.json || global.events === "-";
  return {
    isForPeople: stdout.isTTY === true && !isTaken,
    columns: stdout.columns || DEFAULT_COLUMNS,
    line: (text) => {
      if (!isTaken && !closed.aborted) stdout.write(`${safeResultLine(text)}\n`);
    },
    closed,
  };
}

type Problem = { code: string; message: string } | null;

function writeRunEnd(events: ReturnType<typeof openEventLog>, exitCode: number, error: Problem): void {
  events.write({ event: "run_ended", ok: exitCode === EXIT_CODES.ok.code, exit_code: exitCode, error });
}

function errorOf({ json }: CommandResult): Problem {
  const { error = null } = (typeof json === "object" && json !== null ? json : {}) as { error?: Problem };
  return error;
}

/** Whether a flag is on the command line, which need not be valid. */
function isTyped(argv: readonly string[], ...flags: readonly string[]): boolean {
  const end = argv.indexOf("--");
  return (end < 0 ? argv : argv.slice(0, end)).some((word) => flags.includes(word));
}
