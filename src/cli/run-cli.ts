import { Command, CommanderError, Option } from "commander";
import { EXIT_CODES, type ExitName, ImgbatchError, type Meant } from "../contract/errors.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { programName, quoted } from "../kernel/command-line.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { safeLine, safeResultLine } from "../kernel/hide-keys.ts";
import { readVersion } from "../kernel/package-file.ts";
import { endItsWork } from "../kernel/signals.ts";
import { MOST_SHOWN_CHARS } from "../prompts/problems.ts";
import type { CommandContext, CommandResult, CommandSpec, Output } from "./command.ts";
import { loadCommands, loadNamedCommands } from "./commands/registry.ts";
import { exitsOf, helpDocument } from "./help-document.ts";
import { GLOBAL_OPTIONS, type GlobalOptions, JSON_OPTION, mergeGlobals, type OptionSpec } from "./options.ts";
import { createFinish, toImgbatchError } from "./output/finish.ts";
import { NOTHING_TYPED, stepLines } from "./output/next-step.ts";
import { createOutput, openEventLog } from "./output/output.ts";
import { askOn, chunksOf, guardStreams, readAll, type Terminal, watchSignals } from "./terminal.ts";

/** A command line after parsing. */
type Invocation =
  | {
      kind: "command";
      /** The name with those of the commands above it, such as `admin keys list`. */
      path: string;
      spec: CommandSpec;
      arguments: string[];
      options: Record<string, unknown>;
      global: GlobalOptions;
    }
  /** The help or the version, as requested. `helpOf` is the path of the command whose help it is, empty for the program; null for the version. */
  | { kind: "text"; text: string; helpOf: string | null }
  /** No command was named: the help, as an error. */
  | { kind: "help"; text: string };

/**
 * Parses the command line against the command table. Throws `USAGE` with the mistake and a suggestion.
 */
export function readCommandLine(argv: readonly string[], table: readonly CommandSpec[]): Invocation {
  let chosen: Invocation | null = null;
  const written: string[] = [];
  const program = withOutput(new Command("imgbatch"), written)
    .description("Makes images in bulk, with a batch image service on this machine or elsewhere.")
    .version(readVersion(), "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .usage("<command> [options]")
    .helpCommand("help [command]", "show the help of a command")
    .showSuggestionAfterError()
    .enablePositionalOptions()
    .addHelpText("after", () => programHelp());
  for (const option of [JSON_OPTION, ...GLOBAL_OPTIONS])
    program.addOption(toOption(option, "Global options:"));
  // A command at the beginning is the one to run, so the list of the others is not needed.
  const first = table.find(({ name }) => name === argv[0]);
  for (const spec of first === undefined ? table : [first]) {
    // A command that is not named is only listed: to add the options of all takes longer than to run a short one.
    if (!argv.includes(spec.name)) program.command(spec.name).description(spec.summary);
    else
      addCommand(program, spec, written, (leaf, command) => {
        const global = mergeGlobals(...withAncestors(command).map((each) => each.opts()));
        if (leaf.json === false) requirePlain(leaf.name, global);
        const path = pathOf(command);
        const options = command.opts();
        chosen = { kind: "command", path, spec: leaf, arguments: command.args, options, global };
      });
  }
  try {
    program.parse(withoutHelpWord(argv, table), { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    const text = written.join("");
    if (error.exitCode === 0) {
      const helpOf = error.code === "commander.version" ? null : commandIn(argv, table);
      return { kind: "text", text, helpOf };
    }
    if (error.code === "commander.help") return { kind: "help", text };
    const message = error.message.replace(/^error: /, "").replace(/\n+/g, " ");
    const path = commandIn(argv, table);
    const meant = error.code === "commander.unknownOption" ? optionMeant(message, path, table) : null;
    const said = explained(message, error.code, path, argv);
    throw meant === null || !said.includes(meant.typed)
      ? new ImgbatchError("USAGE", said)
      : new ImgbatchError("USAGE", withSuggestion(said, meant.right), { meant });
  }
  return chosen ?? { kind: "help", text: program.helpInformation() };
}

/** What other programs call an option. */
const OTHER_OPTIONS: Readonly<Record<string, string>> = {
  "--ar": "--aspect-ratio",
  "--ratio": "--aspect-ratio",
  "--resolution": "--size",
  "--image-size": "--size",
  "--out": "--output",
  "--outdir": "--output",
  "--out-dir": "--output",
  "--output-dir": "--output",
  "--provider": "--upstream",
  "--number": "--count",
  "--jobs": "--concurrency",
  "--parallel": "--concurrency",
  "--budget": "--max-cost",
};

/** Returns the option that was meant by one that the command does not take; null where that is not certain. */
function optionMeant(message: string, path: string, table: readonly CommandSpec[]): Meant | null {
  const [, typed] = /^unknown option '(--[a-z][a-z-]*)/.exec(message) ?? [];
  if (typed === undefined) return null;
  const spec = path
    .split(" ")
    .reduce<CommandSpec | undefined>(
      (above, name) => (above?.commands ?? table).find((each) => each.name === name),
      undefined,
    );
  const known = [...(spec?.options ?? []), ...GLOBAL_OPTIONS, JSON_OPTION].flatMap(
    ({ flags }) => flags.match(/--[a-z-]+/g) ?? [],
  );
  const longer = known.filter((name) => name.startsWith(`${typed}-`));
  const other = OTHER_OPTIONS[typed];
  const [, near] = /\(Did you mean (--[a-z-]+)\?\)/.exec(message) ?? [];
  const right = known.find((name) => name === other) ?? (longer.length === 1 ? longer[0] : near);
  return right === undefined ? null : { typed, right };
}

function withSuggestion(message: string, right: string): string {
  return message.includes("Did you mean") ? message : `${message} (Did you mean ${right}?)`;
}

/** Adds to the message of a mistake what the command takes instead. */
function explained(message: string, code: string, path: string, argv: readonly string[]): string {
  if (code !== "commander.unknownOption") return message;
  const isJson = message.endsWith("'--json'");
  const end = argv.indexOf("--");
  const text = (end < 0 ? argv : argv.slice(0, end)).find((word) => /^-.*\s/s.test(word));
  if (text !== undefined) {
    const words = text.length > MOST_SHOWN_CHARS ? `${text.slice(0, MOST_SHOWN_CHARS)}…` : text;
    return `${JSON.stringify(words)} looks like an option; where it is a text, put -- before it: ${programName()} ${path} -- ${quoted(words)}`;
  }
  // The option is most likely one of the command that `exec` is to run.
  const isForChild = path === "exec" && !argv.includes("--");
  const problem = isJson ? `${path} has no --json: its output is not one document` : message;
  return isForChild ? `${problem}; put -- before the command` : problem;
}

/** The path of the command in a command line, which need not be valid; empty if it names none. */
function commandIn(argv: readonly string[], table: readonly CommandSpec[]): string {
  const names: string[] = [];
  let level = table;
  for (const word of argv) {
    if (word === "--") break;
    const found = level.find(({ name }) => name === word);
    if (found === undefined) continue;
    names.push(found.name);
    level = found.commands ?? [];
  }
  return names.join(" ");
}

type OnChosen = (spec: CommandSpec, command: Command) => void;

function addCommand(parent: Command, spec: CommandSpec, written: string[], onChosen: OnChosen): void {
  const command = withOutput(parent.command(spec.name), written)
    .description(spec.summary)
    .helpOption("-h, --help", "show help")
    .showSuggestionAfterError();
  for (const { name, description } of spec.arguments ?? []) command.argument(name, description);
  for (const option of spec.options ?? []) command.addOption(toOption(option));
  for (const child of spec.commands ?? []) addCommand(command, child, written, onChosen);
  command.addHelpText("after", commandHelp(spec));
  const globals = spec.json === false ? GLOBAL_OPTIONS : [JSON_OPTION, ...GLOBAL_OPTIONS];
  for (const option of globals) command.addOption(toOption(option, "Global options:"));
  if (spec.commands !== undefined) command.helpCommand("help [command]", "show the help of a command");
  if (spec.run === undefined) return;
  command.allowExcessArguments(false).action(() => onChosen(spec, command));
}

function withOutput(command: Command, written: string[]): Command {
  const write = (text: string) => {
    written.push(text);
  };
  return command.exitOverride().configureOutput({
    writeOut: write,
    writeErr: write,
    getOutHelpWidth: () => HELP_COLUMNS,
    getErrHelpWidth: () => HELP_COLUMNS,
  });
}

function toOption(spec: OptionSpec, group?: string): Option {
  const description =
    spec.default === undefined ? spec.description : `${spec.description} (default: ${spec.default})`;
  const option = new Option(spec.flags, description);
  if (group !== undefined) option.helpGroup(group);
  if (spec.repeatable) {
    option.argParser((value: string, before: string[] | undefined) => [...(before ?? []), value]);
  }
  return option;
}

/** The program, its subcommands on the way, and this command. */
function withAncestors(command: Command): Command[] {
  return command.parent === null ? [command] : [...withAncestors(command.parent), command];
}

/** Rewrites `help admin keys` to `admin keys --help`. Throws `USAGE` for an unknown command. */
function withoutHelpWord(argv: readonly string[], table: readonly CommandSpec[]): string[] {
  const at = argv.indexOf("help");
  const before = argv.slice(0, Math.max(0, at)).filter((word) => !word.startsWith("-"));
  const start = at < 0 ? null : commandsBelow(before, table);
  if (start === null) return [...argv];
  let level = start;
  for (const word of argv.slice(at + 1).filter((each) => !each.startsWith("-"))) {
    const found = level.find(({ name }) => name === word);
    if (found === undefined) {
      const meant = didYouMean(
        word,
        level.map(({ name }) => name),
      );
      const advice = meant === null ? "" : ` (Did you mean ${meant}?)`;
      throw new ImgbatchError("USAGE", `there is no command '${word}' to help with${advice}`);
    }
    level = found.commands ?? [];
  }
  return [...argv.slice(0, at), ...argv.slice(at + 1), "--help"];
}

/** The commands below these words; null unless every word names a group of commands. */
function commandsBelow(
  words: readonly string[],
  table: readonly CommandSpec[],
): readonly CommandSpec[] | null {
  return words.reduce<readonly CommandSpec[] | null>(
    (level, word) => level?.find(({ name }) => name === word)?.commands ?? null,
    table,
  );
}

/** Throws `USAGE` for output options that a command without `--json` does not have. */
function requirePlain(name: string, global: GlobalOptions): void {
  if (global.json) throw new ImgbatchError("USAGE", `${name} has no --json: its output is not one document`);
  if (global.events === "-") throw new ImgbatchError("USAGE", `${name} takes --events with a file only.`);
}

function pathOf(command: Command): string {
  const above = command.parent;
  return above?.parent ? `${pathOf(above)} ${command.name()}` : command.name();
}

/** The width of help texts, in terminal columns. */
const HELP_COLUMNS = 80;

/** The part of a command's help after its options: examples, notes and exit codes. */
function commandHelp(spec: CommandSpec): string {
  const { examples = [], notes = [] } = spec;
  const lines = examples.length === 0 ? [] : ["", "Examples:", ...examples.map((line) => `  $ ${line}`)];
  for (const note of notes) lines.push("", ...wrap(note, HELP_COLUMNS));
  return [...lines, ...exitCodeLines(exitsOf(spec))].join("\n");
}

/** The part of the program's help after its commands. */
function programHelp(): string {
  const more = [
    "",
    ...wrap(
      "`imgbatch <command> --help` shows the options, examples and exit codes of a command; with --json as JSON, also without a command.",
      HELP_COLUMNS,
    ),
  ];
  return [...exitCodeLines(Object.keys(EXIT_CODES) as ExitName[]), ...more].join("\n");
}

function exitCodeLines(names: readonly ExitName[]): string[] {
  const rows = names.map((name) => EXIT_CODES[name]);
  return ["", "Exit codes:", ...rows.flatMap(({ code, meaning }) => row(String(code), meaning))];
}

const INDENT = 7;

function row(code: string, meaning: string): string[] {
  const lines = wrap(meaning, HELP_COLUMNS - INDENT);
  return lines.map((line, i) => `${i === 0 ? `  ${code.padStart(3)}  ` : " ".repeat(INDENT)}${line}`);
}

function wrap(text: string, columns: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last === undefined || last.length + 1 + word.length > columns) lines.push(word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines;
}

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
    return { finish, code: finish.fail(error, styleOf(invocation, argv)) };
  }
}

function styleOf(
  { global, spec, path, options, arguments: words }: CommandInvocation,
  argv: readonly string[],
): ErrorStyle {
  const { paysAgain = false, resumes = false } = spec;
  const typed = { path, options, arguments: words, where: global, paysAgain, resumes, words: argv };
  return { ...global, typed };
}

/** The error style before parsing succeeded, guessed from the raw arguments. */
function guessStyle(argv: readonly string[], table: readonly CommandSpec[]): ErrorStyle {
  return {
    verbose: false,
    quiet: isTyped(argv, "-q", "--quiet"),
    color: !isTyped(argv, "--no-color"),
    typed: { ...NOTHING_TYPED, path: commandIn(argv, table), words: argv },
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
    const code = finish.fail(thrown, styleOf(invocation, argv));
    const { code: errorCode, message } = toImgbatchError(thrown);
    writeRunEnd(events, code, { code: errorCode, message });
    return code;
  };
  const watch = watchSignals(terminal, failed);
  events.write({ event: "run_started", command: invocation.path, version: readVersion() });
  try {
    const results = resultsOf(terminal, global, closed);
    const result = await runInvocation(invocation, { argv, terminal, clock, output, results, watch });
    lines.settle();
    const error = errorOf(result);
    writeRunEnd(events, result.exitCode ?? EXIT_CODES.ok.code, error);
    // `--quiet` left out the lines that report the failure.
    if (global.quiet && error !== null) terminal.stderr.write(`error: ${safeLine(error.message)}\n`);
    const code = finish.done(result);
    if (result.next != null)
      for (const line of stepLines(result.next, styleOf(invocation, argv).typed)) lines.note(line);
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

/** Runs a command for the command line or for a program, which gives it what a terminal would. Throws what the command throws. */
export async function runInvocation(
  { spec, options, global, arguments: args }: CommandInvocation,
  process: {
    argv: readonly string[];
    terminal: Pick<Terminal, "cwd" | "stdin" | "loadView"> & Parameters<typeof askOn>[0];
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
      const service = await openService(global, needs, {
        output,
        clock,
        signal,
        get stdin() {
          return terminal.stdin;
        },
        cwd: terminal.cwd,
      });
      const { failed, paidRequests } = service;
      if (paidRequests !== undefined) watch.countPaid(paidRequests);
      failed?.addEventListener("abort", () => watch.abort(failed.reason), { once: true });
      return service;
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
