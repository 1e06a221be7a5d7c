import { Chalk } from "chalk";
import { EXIT_CODES } from "../../contract/exit-codes.ts";
import { safeJson, safeResultLine } from "../../kernel/api-keys.ts";
import type { CommandResult } from "../command-line/command-context.ts";
import { mayColor, type Terminal } from "../terminal/terminal.ts";
import { NOTHING_TYPED, type Typed } from "./advice.ts";
import { errorDocument, errorLines, exitCodeOf, resultDocument, toImgbatchError } from "./error-document.ts";

/** How a process ends: with one document or some lines on stdout, an error on stderr, and an exit code. */
export interface Finish {
  /** The result of a command. */
  done(result: CommandResult): number;
  /** Text that was asked for, such as the help. */
  text(text: string): number;
  fail(thrown: unknown, style?: ErrorStyle): number;
}

/** How an error is told. */
export interface ErrorStyle {
  verbose: boolean;
  /** No advice. */
  quiet: boolean;
  color: boolean;
  typed: Typed;
}

const USUAL: ErrorStyle = { verbose: false, quiet: false, color: true, typed: NOTHING_TYPED };

/** With `--json` exactly one document is printed, whichever end comes first. */
export function createFinish(
  terminal: Pick<Terminal, "stdout" | "stderr">,
  wants: { json: boolean; lines: () => boolean },
): Finish {
  const { stdout, stderr } = terminal;
  let isPrinted = false;
  const print = (document: unknown) => {
    if (isPrinted) return;
    isPrinted = true;
    stdout.write(`${safeJson(document, 2)}\n`);
  };
  return {
    done: (result) => {
      if (wants.json) print(resultDocument(result));
      else if (wants.lines())
        stdout.write((result.lines ?? []).map((line) => `${safeResultLine(line)}\n`).join(""));
      return result.exitCode;
    },
    text: (text) => {
      if (wants.json) print({ ok: true, text, exit_code: EXIT_CODES.ok.code });
      else stdout.write(text);
      return EXIT_CODES.ok.code;
    },
    fail: (thrown, style = USUAL) => {
      const error = toImgbatchError(thrown);
      if (wants.json) print(errorDocument(error));
      const { red } = new Chalk({ level: mayColor(stderr, style.color) ? 1 : 0 });
      stderr.write(
        errorLines(error, { ...style, red })
          .map((line) => `${line}\n`)
          .join(""),
      );
      return exitCodeOf(error);
    },
  };
}
