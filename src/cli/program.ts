import { Command, CommanderError, Option } from "commander";
import { ImgbatchError } from "../contract/errors.ts";
import { EXIT_CODES } from "../contract/exit-codes.ts";
import type { CommandSpec, GlobalOptions, OptionSpec } from "./command.ts";
import { GLOBAL_OPTIONS, JSON_OPTION, mergeGlobals } from "./global-options.ts";
import { readVersion } from "./version.ts";

/** What the caller typed, understood. */
export type Invocation =
  | {
      kind: "command";
      spec: CommandSpec;
      arguments: string[];
      options: Record<string, unknown>;
      global: GlobalOptions;
    }
  /** Help or version that was asked for. */
  | { kind: "text"; text: string }
  /** Nothing was asked for: help, as an error. */
  | { kind: "help"; text: string };

/** Reads the command line by the command table. Throws `USAGE`, saying what is wrong and what may be meant. */
export function readCommandLine(argv: readonly string[], table: readonly CommandSpec[]): Invocation {
  let chosen: Invocation | null = null;
  const written: string[] = [];
  const program = withOutput(new Command("imgbatch"), written)
    .description("Makes images in bulk, with a batch image service that runs on your machine or elsewhere.")
    .version(readVersion(), "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .usage("<command> [options]")
    .showSuggestionAfterError()
    .enablePositionalOptions()
    .addHelpText("after", () => exitCodeHelp());
  for (const option of [JSON_OPTION, ...GLOBAL_OPTIONS])
    program.addOption(toOption(option, "Global options:"));
  for (const spec of table) {
    addCommand(program, spec, written, (leaf, command) => {
      const global = mergeGlobals(program.opts(), command.opts());
      if (global === null) throw new ImgbatchError("USAGE", "--progress: use auto, plain or none.");
      if (leaf.json === false && global.json) throw new ImgbatchError("USAGE", `${leaf.name} has no --json.`);
      chosen = { kind: "command", spec: leaf, arguments: command.args, options: command.opts(), global };
    });
  }
  try {
    program.parse(argv, { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    const text = written.join("");
    if (error.exitCode === 0) return { kind: "text", text };
    if (error.code === "commander.help") return { kind: "help", text };
    throw new ImgbatchError("USAGE", error.message.replace(/^error: /, "").replace(/\n+/g, " "));
  }
  return chosen ?? { kind: "help", text: program.helpInformation() };
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
  if (spec.examples !== undefined) {
    command.addHelpText("after", `\nExamples:\n${spec.examples.map((line) => `  $ ${line}`).join("\n")}`);
  }
  if (spec.notes !== undefined) command.addHelpText("after", `\n${spec.notes.join("\n")}`);
  if (spec.load === undefined) return;
  const globals = spec.json === false ? GLOBAL_OPTIONS : [JSON_OPTION, ...GLOBAL_OPTIONS];
  for (const option of globals) command.addOption(toOption(option, "Global options:"));
  command.allowExcessArguments(false).action(() => onChosen(spec, command));
}

function withOutput(command: Command, written: string[]): Command {
  const write = (text: string) => {
    written.push(text);
  };
  return command.exitOverride().configureOutput({ writeOut: write, writeErr: write });
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

function exitCodeHelp(): string {
  const rows = Object.values(EXIT_CODES).map(
    ({ code, meaning }) => `  ${String(code).padStart(3)}  ${meaning}`,
  );
  return `\nExit codes:\n${rows.join("\n")}`;
}
