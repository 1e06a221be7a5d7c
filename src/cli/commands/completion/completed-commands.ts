import { SIZE_TIERS } from "../../../contract/images/image-sizes.ts";
import { BATCH_STATUSES, ITEM_STATUSES } from "../../../contract/statuses.ts";
import type { CommandSpec, OptionSpec } from "../../command-line/command-spec.ts";

/** What may follow an option or stand as an argument: one of these words, a file, a directory, or anything. */
export type Kind = { words: readonly string[] } | "file" | "dir" | "any";

export interface CompletedOption {
  /** `--output`, `-o`. */
  names: string[];
  description: string;
  /** Null where the option takes no value. */
  value: Kind | null;
}

export interface CompletedCommand {
  /** The words that lead to it, such as `admin keys list`; empty for the program itself. */
  path: string[];
  summary: string;
  commands: { name: string; summary: string }[];
  options: CompletedOption[];
  /** Null where it takes no arguments. */
  argument: Kind | null;
}

/** Values that are some words, by the name of the option (where several commands have it, behind theirs) or argument. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  "--progress": ["auto", "plain", "none"],
  "--mime-type": ["image/png", "image/jpeg", "image/webp"],
  "list --status": BATCH_STATUSES,
  "items --status": [...ITEM_STATUSES, "all"],
  "--size": SIZE_TIERS,
  "--downloaded": ["yes", "no"],
  "--log-level": ["debug", "info", "warn", "error"],
  "--template": ["starter", "github", "gitlab", "script", "all"],
  "<shell>": ["bash", "zsh", "fish"],
  "[name]": ["prompts", "config", "result", "event", "openapi"],
};

/** Every command of a table, the program itself first, with all that can be typed after it. */
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
      options: [...own, help].map((option) => toOption(option, path)),
      argument: argument === undefined ? null : kindOf(argument.name, argument.name, path),
    };
    return [here, ...commands.flatMap((child) => visit(child, path))];
  };
  const program: CompletedCommand = {
    path: [],
    summary: "",
    commands: table.map(namesOf),
    options: [jsonOption, ...globals, help, version].map((option) => toOption(option, [])),
    argument: null,
  };
  return [program, ...table.flatMap((spec) => visit(spec, []))];
}

function namesOf({ name, summary }: CommandSpec): { name: string; summary: string } {
  return { name, summary };
}

function toOption({ flags, description }: OptionSpec, path: readonly string[]): CompletedOption {
  const names = [...flags.matchAll(/(?<![\w<[-])--?[\w-]+/g)].map(([name]) => name);
  const [placeholder] = /[<[][^>\]]+[>\]]$/.exec(flags) ?? [];
  const value = placeholder === undefined ? null : kindOf(names.at(-1) ?? "", placeholder, path);
  return { names, description, value };
}

function kindOf(name: string, placeholder: string, path: readonly string[]): Kind {
  const words = WORDS[[...path, name].join(" ")] ?? WORDS[name] ?? WORDS[placeholder];
  if (words !== undefined) return { words };
  if (/\b(file|path|id\|dir|command)/.test(placeholder)) return "file";
  return /\bdir\b/.test(placeholder) ? "dir" : "any";
}
