import type { CommandSpec } from "../../command-line/command-spec.ts";
import type { OptionSpec } from "../../command-line/option-values.ts";

/** The values of an option or argument: one of these words, a file, a directory, or any text. */
export type Kind = { words: readonly string[] } | "file" | "dir" | "any";

export interface CompletedOption {
  /** `--output`, `-o`. */
  names: string[];
  description: string;
  /** Null for an option without a value. */
  value: Kind | null;
}

export interface CompletedCommand {
  /** The words that lead to it, such as `admin keys list`; empty for the program itself. */
  path: string[];
  summary: string;
  commands: { name: string; summary: string }[];
  options: CompletedOption[];
  /** Null for a command without arguments. */
  argument: Kind | null;
}

/** Every command of a table with the words that can follow it. The program itself comes first. */
export function completedCommands(
  table: readonly CommandSpec[],
  globals: readonly OptionSpec[],
  jsonOption: OptionSpec,
): CompletedCommand[] {
  const help: OptionSpec = { flags: "-h, --help", description: "show help" };
  const version: OptionSpec = { flags: "-V, --version", description: "print the version" };
  const visit = (spec: CommandSpec, above: readonly string[]): CompletedCommand[] => {
    const { name, summary, options = [], arguments: [argument] = [], commands = [], json, load } = spec;
    const path = [...above, name];
    const own = load === undefined ? [] : [...options, ...(json === false ? [] : [jsonOption]), ...globals];
    const here: CompletedCommand = {
      path,
      summary,
      commands: commands.map(namesOf),
      options: [...own, help].map(toOption),
      argument: argument === undefined ? null : kindOf(argument.name, argument.choices),
    };
    return [here, ...commands.flatMap((child) => visit(child, path))];
  };
  const program: CompletedCommand = {
    path: [],
    summary: "",
    commands: table.map(namesOf),
    options: [jsonOption, ...globals, help, version].map(toOption),
    argument: null,
  };
  return [program, ...table.flatMap((spec) => visit(spec, []))];
}

function namesOf({ name, summary }: CommandSpec): { name: string; summary: string } {
  return { name, summary };
}

function toOption({ flags, description, choices }: OptionSpec): CompletedOption {
  const names = [...flags.matchAll(/(?<![\w<[-])--?[\w-]+/g)].map(([name]) => name);
  const [placeholder] = /[<[][^>\]]+[>\]]$/.exec(flags) ?? [];
  const value = placeholder === undefined ? null : kindOf(placeholder, choices);
  return { names, description, value };
}

function kindOf(placeholder: string, choices: readonly string[] | undefined): Kind {
  if (choices !== undefined) return { words: choices };
  if (/\b(file|path|id\|dir|command)/.test(placeholder)) return "file";
  return /\bdir\b/.test(placeholder) ? "dir" : "any";
}
