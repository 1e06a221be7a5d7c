import type { ExitName } from "../../contract/exit-codes.ts";
import type { RunCommand } from "./command-context.ts";

/** An option of a command, as commander takes it. */
export interface OptionSpec {
  /** Commander's notation: `-o, --output <dir>`, `--detach`, `--metadata <k=v...>`. */
  flags: string;
  description: string;
  /** Shown in the help; the command applies it. */
  default?: string;
  /** May be given several times; the command gets a list. */
  repeatable?: true;
}

export interface ArgumentSpec {
  /** Commander's notation: `<file>`, `[dir]`, `<ids...>`. */
  name: string;
  description: string;
}

/** What the command table knows of a command. Cheap to import: the work is behind `load`. */
export interface CommandSpec {
  name: string;
  summary: string;
  arguments?: readonly ArgumentSpec[];
  options?: readonly OptionSpec[];
  /** Lines of example calls for the help. */
  examples?: readonly string[];
  /** Paragraphs of the help, between the examples and the exit codes. */
  notes?: readonly string[];
  /** How it can end, besides done, used wrongly and broken inside. For the help. */
  exits?: readonly ExitName[];
  /** Running it again makes and bills again: the advice after an error must not promise otherwise. */
  paysAgain?: true;
  /** Commands below this one, as in `admin check`. */
  commands?: readonly CommandSpec[];
  /** Only where a command has no `--json`, because it is no question with one answer. */
  json?: false;
  load?: () => Promise<{ run: RunCommand }>;
}
