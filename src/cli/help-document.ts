import { EXIT_CODES, type ExitName } from "../contract/errors.ts";
import type { CommandSpec } from "./command.ts";
import { flagIn, globalTable, type OptionSpec } from "./options.ts";

/** The exits that every command has. */
const ALWAYS: readonly ExitName[] = ["ok", "internal", "usage"];

/** The exits of a command, in the order of the table; for a group, those of its commands. */
export function exitsOf(spec: CommandSpec): ExitName[] {
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
export function helpDocument(path: string, table: readonly CommandSpec[]): object {
  const [first = "", ...rest] = path.split(" ");
  const top = table.find(({ name }) => name === first);
  if (top === undefined)
    return {
      commands: table.map((each) => commandHelp(each)),
      options: globalOptions(),
      exit_codes: exitCodes(Object.keys(EXIT_CODES) as ExitName[]),
      examples: table.flatMap(({ examples = [] }) => examples.slice(0, 1)),
    };
  const spec = rest.reduce((above, word) => above.commands?.find(({ name }) => name === word) ?? above, top);
  const { options, ...own } = commandHelp(spec, path);
  return { ...own, options: [...options, ...globalOptions(spec.json)] };
}

function commandHelp(spec: CommandSpec, path = spec.name) {
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
    commands: commands.map((child): object => commandHelp(child, `${path} ${child.name}`)),
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
