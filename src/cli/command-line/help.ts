import { EXIT_CODES, type ExitName } from "../../contract/exit-codes.ts";
import type { CommandSpec } from "./command-spec.ts";

/** Help is laid out for terminals of this width. */
export const HELP_COLUMNS = 80;

/** Every command can end like this. */
const ALWAYS: readonly ExitName[] = ["ok", "internal", "usage"];

/** What follows the options in the help of a command. */
export function commandHelp(spec: CommandSpec): string {
  const { examples = [], notes = [] } = spec;
  const lines = examples.length === 0 ? [] : ["", "Examples:", ...examples.map((line) => `  $ ${line}`)];
  for (const note of notes) lines.push("", ...wrap(note, HELP_COLUMNS));
  const names = Object.keys(EXIT_CODES) as ExitName[];
  const exits = exitsOf(spec);
  const own = names.filter((name) => ALWAYS.includes(name) || exits.includes(name));
  return [...lines, ...exitCodeLines(own)].join("\n");
}

/** Of a group, those of its commands. */
function exitsOf({ exits = [], commands = [] }: CommandSpec): readonly ExitName[] {
  return [...exits, ...commands.flatMap(exitsOf)];
}

/** What follows the commands in the help of the program. */
export function programHelp(): string {
  const more = [
    "",
    ...wrap("`imgbatch <command> --help` has its options, examples and exit codes.", HELP_COLUMNS),
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
