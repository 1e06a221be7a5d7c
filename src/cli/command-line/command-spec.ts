import type { ExitName } from "../../contract/exit-codes.ts";
import type { RunCommand } from "./command-context.ts";
import type { OptionSpec } from "./option-values.ts";

export interface ArgumentSpec {
  /** Commander's notation: `<file>`, `[dir]`, `<ids...>`. */
  name: string;
  description: string;
  /** The words that it takes, for the completion of shells. The command checks them. */
  choices?: readonly string[];
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
  /** Running it again goes on where it stopped and pays nothing twice: the advice after an error says so. */
  resumes?: true;
  /** Commands below this one, as in `admin check`. */
  commands?: readonly CommandSpec[];
  /** Only where a command has no `--json`, because it is no question with one answer. */
  json?: false;
  load?: () => Promise<{ run: RunCommand }>;
}
