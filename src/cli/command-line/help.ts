import { EXIT_CODES, type ExitName } from "../../contract/exit-codes.ts";
import type { CommandSpec } from "./command-spec.ts";

/** The width of help texts, in terminal columns. */
export const HELP_COLUMNS = 80;

/** The exits that every command has. */
const ALWAYS: readonly ExitName[] = ["ok", "internal", "usage"];

/** The part of a command's help after its options: examples, notes and exit codes. */
export function commandHelp(spec: CommandSpec): string {
  const { examples = [], notes = [] } = spec;
  const lines = examples.length === 0 ? [] : ["", "Examples:", ...examples.map((line) => `  $ ${line}`)];
  for (const note of notes) lines.push("", ...wrap(note, HELP_COLUMNS));
  const names = Object.keys(EXIT_CODES) as ExitName[];
  const exits = exitsOf(spec);
  const own = names.filter((name) => ALWAYS.includes(name) || exits.includes(name));
  return [...lines, ...exitCodeLines(own)].join("\n");
}

/** The exits of a command; for a group, those of its commands. */
function exitsOf({ exits = [], commands = [] }: CommandSpec): readonly ExitName[] {
  return [...exits, ...commands.flatMap(exitsOf)];
}

/** The part of the program's help after its commands. */
export function programHelp(): string {
  const more = [
    "",
    ...wrap(
      "`imgbatch <command> --help` shows the options, examples and exit codes of a command.",
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
