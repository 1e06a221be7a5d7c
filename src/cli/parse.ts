import { Command, CommanderError, Option } from "commander";
import { EXIT_CODES, type ExitName, ImgbatchError } from "../contract/errors.ts";
import { programName, quoted } from "../kernel/command-line.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { readVersion } from "../kernel/package-file.ts";
import { MOST_SHOWN_CHARS } from "../prompts/problems.ts";
import type { CommandSpec } from "./command.ts";
import { exitsOf } from "./help-document.ts";
import { GLOBAL_OPTIONS, type GlobalOptions, JSON_OPTION, mergeGlobals, type OptionSpec } from "./options.ts";

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
    throw new ImgbatchError("USAGE", explained(message, error.code, commandIn(argv, table), argv));
  }
  return chosen ?? { kind: "help", text: program.helpInformation() };
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
export function commandIn(argv: readonly string[], table: readonly CommandSpec[]): string {
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
