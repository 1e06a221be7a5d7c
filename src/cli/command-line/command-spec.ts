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

/** The description of a command: the parser, the help and the completion read it. Its code loads only with `load`. */
export interface CommandSpec {
  name: string;
  summary: string;
  arguments?: readonly ArgumentSpec[];
  options?: readonly OptionSpec[];
  /** Lines of example calls for the help. */
  examples?: readonly string[];
  /** Paragraphs of the help, between the examples and the exit codes. */
  notes?: readonly string[];
  /** The exits besides success, wrong usage and an internal error. For the help. */
  exits?: readonly ExitName[];
  /** Running it again makes and bills images again: the advice after an error must not promise otherwise. */
  paysAgain?: true;
  /** Running it again continues where it stopped and pays nothing twice: the advice after an error uses this. */
  resumes?: true;
  /** Commands below this one, as in `admin check`. */
  commands?: readonly CommandSpec[];
  /** False for a command without `--json`, because its output is not one document. */
  json?: false;
  load?: () => Promise<{ run: RunCommand }>;
}
