import { Command, CommanderError, Help, Option } from "commander";
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
import type { SharedOptions } from "./commands/shared-options.ts";
import {
  flagIn,
  type GlobalOptions,
  GROUPS,
  globalTable,
  mergeGlobals,
  type OptionSpec,
  type OptionTable,
  valuesOf,
} from "./options.ts";
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
      /** What was typed for its options, by their names. */
      options: Readonly<Record<string, unknown>>;
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
  for (const option of Object.values(globalTable())) program.addOption(toOption(option, GLOBAL_GROUP));
  // A command at the beginning is the one to run, so the list of the others is not needed.
  const first = table.find(({ name }) => name === argv[0]);
  for (const spec of first === undefined ? table : [first]) {
    // A command that is not named is only listed: to add the options of all takes longer than to run a short one.
    if (!argv.includes(spec.name)) program.command(spec.name).description(spec.summary);
    else
      addCommand(program, spec, written, (leaf, command) => {
        const global = mergeGlobals(
          ...withAncestors(command).map((each) => typedIn(globalTable(), each.opts())),
        );
        if (leaf.json === false) requirePlain(leaf.name, global);
        const path = pathOf(command);
        const options = typedIn(leaf.options ?? {}, command.opts());
        chosen = { kind: "command", path, spec: leaf, arguments: command.args, options, global };
      });
  }
  const topic = topicIn(argv);
  if (topic !== null) return { kind: "text", text: topic, helpOf: "" };
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
  const known = Object.values({ ...spec?.options, ...globalTable() }).map(flagIn);
  const longer = known.filter((name) => name.startsWith(`${typed}-`));
  const other = OTHER_OPTIONS[typed];
  const [, near] = /\(Did you mean (--[a-z-]+)\?\)/.exec(message) ?? [];
  const right: string | undefined =
    known.find((name) => name === other) ?? (longer.length === 1 ? longer[0] : near);
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
  for (const [option, group] of groupedOptions(spec)) command.addOption(toOption(option, group));
  for (const child of spec.commands ?? []) addCommand(command, child, written, onChosen);
  command.addHelpText("after", commandHelp(spec)).configureHelp({ groupItems: withoutGlobals });
  for (const option of Object.values(globalTable(spec))) command.addOption(toOption(option, GLOBAL_GROUP));
  if (spec.commands !== undefined) command.helpCommand("help [command]", "show the help of a command");
  if (spec.run === undefined) return;
  command.allowExcessArguments(false).action(() => onChosen(spec, command));
}

/** Returns the options of a command in the order of its help, each with its heading. */
function groupedOptions({ options = {}, first }: CommandSpec): (readonly [OptionSpec, string | undefined])[] {
  if (first === undefined) return Object.values(options).map((option) => [option, undefined]);
  const others = Object.entries(options).flatMap(([name, option]) => (first.includes(name) ? [] : [option]));
  const below = (group: OptionSpec["group"]) => others.filter((option) => option.group === group);
  return [
    ...first.flatMap((name) => options[name] ?? []).map((option) => [option, undefined] as const),
    ...below(undefined).map((option) => [option, undefined] as const),
    ...(Object.keys(GROUPS) as (keyof typeof GROUPS)[]).flatMap((group) =>
      below(group).map((option) => [option, GROUPS[group]] as const),
    ),
  ];
}

/** The global options are in `imgbatch help global`, and in no other command's help. */
const withoutGlobals: Help["groupItems"] = (...items) => {
  const groups = new Help().groupItems(...items);
  groups.delete(GLOBAL_GROUP);
  return groups;
};

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

/** Returns what was typed for the options of a table by their names there, from what commander calls them: `{ ui: false }`. */
export function typedIn(
  table: OptionTable,
  found: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const typed = Object.entries(table).flatMap(([name, spec]) => {
    const option = toOption(spec);
    const value = found[option.attributeName()];
    // `--no-ui` is true where commander has false for `ui`.
    if (option.negate) return value === false ? [[name, true]] : [];
    return value === undefined || value === false ? [] : [[name, value]];
  });
  return Object.fromEntries(typed);
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
      const meant = didYouMean(word, [...level.map(({ name }) => name), ...Object.keys(TOPICS)]);
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

const GLOBAL_GROUP = "Global options:";

/** What `imgbatch help` explains besides commands. */
const TOPICS: Readonly<Record<string, () => string>> = {
  "exit-codes": () =>
    exitCodeLines(Object.keys(EXIT_CODES) as ExitName[])
      .slice(1)
      .join("\n"),
  global: () => {
    const command = new Command("imgbatch")
      .configureHelp({ helpWidth: HELP_COLUMNS })
      .helpOption(false)
      .usage("[global options] <command> [global options]")
      .description("Options of every command. They may stand before its name or after it.");
    for (const option of Object.values(globalTable())) command.addOption(toOption(option, GLOBAL_GROUP));
    return command.helpInformation().trimEnd();
  },
};

/** The text of `help exit-codes` and `help global`; null for any other command line. */
function topicIn(argv: readonly string[]): string | null {
  const [word, topic = "", ...others] = argv.filter((each) => !each.startsWith("-"));
  const isTopic = word === "help" && others.length === 0 && Object.hasOwn(TOPICS, topic);
  return isTopic ? `${TOPICS[topic]?.()}\n` : null;
}

/** The part of a command's help after its options: examples, notes, and where the rest is explained. */
function commandHelp(spec: CommandSpec): string {
  const { examples = [], notes = [], json } = spec;
  const lines = examples.length === 0 ? [] : ["", "Examples:", ...examples.map((line) => `  $ ${line}`)];
  for (const note of notes) lines.push("", ...wrap(note, HELP_COLUMNS));
  const globals = `${json === false ? "" : "--json, "}--quiet, --data, --base-url …`;
  const codes = exitsOf(spec).map((name) => EXIT_CODES[name].code);
  return [
    ...lines,
    "",
    `Global options: ${globals} (imgbatch help global)`,
    `Exit codes: ${codes.join(" ")} (imgbatch help exit-codes)`,
  ].join("\n");
}

/** The part of the program's help after its commands. */
function programHelp(): string {
  const more = [
    "",
    ...wrap(
      "`imgbatch <command> --help` shows the options and examples of a command; with --json as JSON, also without a command.",
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

/** The exits that every command has. */
const ALWAYS: readonly ExitName[] = ["ok", "internal", "usage"];

/** The exits of a command, in the order of the table; for a group, those of its commands. */
function exitsOf(spec: CommandSpec): ExitName[] {
  const named = ({ exits = [], commands = [] }: CommandSpec): ExitName[] => [
    ...exits,
    ...commands.flatMap(named),
  ];
  const own = new Set([...ALWAYS, ...named(spec)]);
  return (Object.keys(EXIT_CODES) as ExitName[]).filter((name) => own.has(name));
}

/**
 * Returns the help as JSON: of the program for an empty path, else of the command with this path, such as `admin keys`.
 * Its `options` are then its own and those that every command takes.
 */
function helpDocument(path: string, table: readonly CommandSpec[]): object {
  const [first = "", ...rest] = path.split(" ");
  const top = table.find(({ name }) => name === first);
  if (top === undefined)
    return {
      commands: table.map((each) => commandDocument(each)),
      options: globalOptions(),
      exit_codes: exitCodes(Object.keys(EXIT_CODES) as ExitName[]),
      examples: table.flatMap(({ examples = [] }) => examples.slice(0, 1)),
    };
  const spec = rest.reduce((above, word) => above.commands?.find(({ name }) => name === word) ?? above, top);
  const { options, ...own } = commandDocument(spec, path);
  return { ...own, options: [...options, ...globalOptions(spec.json)] };
}

function commandDocument(spec: CommandSpec, path = spec.name) {
  const { summary, arguments: words = [], options = {}, commands = [], examples = [], notes = [] } = spec;
  return {
    name: path,
    summary,
    arguments: words.map(({ name, description, choices }) => ({
      name: name.replace(/[<>[\]]|\.{3}/g, ""),
      description,
      required: name.startsWith("<"),
      repeatable: name.includes("..."),
      ...(choices === undefined ? {} : { choices }),
    })),
    commands: commands.map((child): object => commandDocument(child, `${path} ${child.name}`)),
    options: Object.values(options).map(optionHelp),
    exit_codes: exitCodes(exitsOf(spec)),
    examples,
    ...(notes.length === 0 ? {} : { notes }),
  };
}

function globalOptions(json?: false) {
  return Object.values(globalTable({ json })).map(optionHelp);
}

/** What the value of an option is, by the word in its notation; any other word is a text. */
const TYPES: Readonly<Record<string, string>> = { n: "integer", usd: "number" };

function optionHelp({ flags, description, default: usual, choices, repeatable }: OptionSpec) {
  const [, value] = /[<[]([^>\]]+)[>\]]$/.exec(flags) ?? [];
  return {
    name: flagIn({ flags }),
    flags,
    description,
    type: value === undefined ? "boolean" : (TYPES[value] ?? "string"),
    ...(usual === undefined ? {} : { default: usual }),
    ...(choices === undefined ? {} : { choices }),
    ...(repeatable === undefined ? {} : { repeatable }),
  };
}

function exitCodes(names: readonly ExitName[]) {
  return names.map((name) => EXIT_CODES[name]);
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
  const values: SharedOptions = valuesOf(spec.options ?? {}, options, clock.nowMs());
  if (values.junit !== undefined || values.markdown !== undefined || values.open) {
    const { requireReportPaths } = await import("./output/reports.ts");
    await requireReportPaths(values, terminal.cwd);
  }
  return run({
    global,
    options: values,
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
