import { styleText } from "node:util";
import { EXIT_CODES } from "../../contract/exit-codes.ts";
import { safeJson, safeResultLine } from "../../kernel/hide-keys.ts";
import type { CommandResult } from "../command-line/command-context.ts";
import { mayColor, type Terminal } from "../terminal/terminal.ts";
import { NOTHING_TYPED, type Typed } from "./advice.ts";
import { errorDocument, errorLines, exitCodeOf, resultDocument, toImgbatchError } from "./error-document.ts";

/** Writes the end of a process: its result on stdout, its error on stderr. Each method returns the exit code. */
export interface Finish {
  /** Writes the result of a command. */
  done(result: CommandResult): number;
  /** Writes a requested text, such as the help. */
  text(text: string): number;
  fail(thrown: unknown, style?: ErrorStyle): number;
}

/** How an error is written. */
export interface ErrorStyle {
  verbose: boolean;
  /** No advice. */
  quiet: boolean;
  color: boolean;
  typed: Typed;
}

const DEFAULT_STYLE: ErrorStyle = { verbose: false, quiet: false, color: true, typed: NOTHING_TYPED };

/** With `--json`, the first end prints its document; later ones print none. */
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
    fail: (thrown, style = DEFAULT_STYLE) => {
      const error = toImgbatchError(thrown);
      if (wants.json) print(errorDocument(error));
      const red = (text: string) =>
        mayColor(stderr, style.color) ? styleText("red", text, { validateStream: false }) : text;
      stderr.write(
        errorLines(error, { ...style, red })
          .map((line) => `${line}\n`)
          .join(""),
      );
      return exitCodeOf(error);
    },
  };
}
