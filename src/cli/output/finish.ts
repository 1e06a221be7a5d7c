import { dirname } from "node:path";
import { styleText } from "node:util";
import {
  EXIT_CODES,
  errorEntry,
  ImgbatchError,
  isDatabaseDamage,
  SERVICE_ERRORS,
} from "../../contract/errors.ts";
import { isWaitingCode, WAITING_CODES } from "../../contract/waiting.ts";
import { shellWord } from "../../kernel/command-line.ts";
import { hideApiKeys, safeJson, safeLine, safeResultLine } from "../../kernel/hide-keys.ts";
import { packageFile } from "../../kernel/package-file.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import { MOST_SHOWN_CHARS } from "../../prompts/problems.ts";
import type { CommandResult } from "../command.ts";
import { mayColor, type Terminal } from "../terminal.ts";
import { adviceFor, NOTHING_TYPED, stepLines, type Typed } from "./next-step.ts";

/** How an error is written. */
interface ErrorStyle {
  verbose: boolean;
  /** No advice. */
  quiet: boolean;
  color: boolean;
  typed: Typed;
}

const DEFAULT_STYLE: ErrorStyle = { verbose: false, quiet: false, color: true, typed: NOTHING_TYPED };

/**
 * Returns how to write the end of a process: its result on stdout, its error on stderr. Each function returns the exit code.
 * With `--json`, the first end prints its document; later ones print none.
 */
export function createFinish(
  terminal: Pick<Terminal, "stdout" | "stderr">,
  wants: { json: boolean; lines: () => boolean; argv?: readonly string[] },
) {
  const shorten = shortenerOf(wants.argv ?? []);
  const { stdout, stderr } = terminal;
  let isPrinted = false;
  const print = (document: unknown) => {
    if (isPrinted) return;
    isPrinted = true;
    stdout.write(`${safeJson(document, 2)}\n`);
  };
  return {
    /** Writes the result of a command. */
    done: (result: CommandResult): number => {
      if (wants.json) print(resultDocument(result));
      else if (wants.lines())
        stdout.write((result.lines ?? []).map((line) => `${safeResultLine(line)}\n`).join(""));
      return result.exitCode ?? EXIT_CODES.ok.code;
    },
    /** Writes a requested text, such as the help. */
    text: (text: string): number => {
      if (wants.json) print({ ok: true, text, exit_code: EXIT_CODES.ok.code });
      else stdout.write(text);
      return EXIT_CODES.ok.code;
    },
    fail: (thrown: unknown, style: ErrorStyle = DEFAULT_STYLE): number => {
      const error = toImgbatchError(thrown);
      if (wants.json) print(shortenedDocument(errorDocument(error), shorten));
      const red = (text: string) =>
        mayColor(stderr, style.color) ? styleText("red", text, { validateStream: false }) : text;
      stderr.write(
        errorLines(error, { ...style, red })
          .map((line) => `${shorten(line)}\n`)
          .join(""),
      );
      return exitCodeOf(error);
    },
  };
}

/** Returns a function that cuts, in a message, the words of a command line that are too long to be repeated. */
function shortenerOf(argv: readonly string[]): (message: string) => string {
  const long = argv
    .flatMap((word) => [word, word.replace(/^--[a-z-]+=/, ""), word.slice(word.indexOf("=") + 1)])
    .flatMap((word) => [word, JSON.stringify(word).slice(1, -1), shellWord(word)])
    .filter((word) => word.length > MOST_SHOWN_CHARS)
    .sort((a, b) => b.length - a.length);
  return (message) =>
    long.reduce(
      (text, word) => text.replaceAll(word, () => `${truncateCodePoints(word, MOST_SHOWN_CHARS - 1)}…`),
      message,
    );
}

function shortenedDocument(document: ReturnType<typeof errorDocument>, shorten: (text: string) => string) {
  const { message, details, ...error } = document.error;
  const shown = { ...error, message: shorten(message), ...(details && { details: details.map(shorten) }) };
  return { ...document, error: shown };
}

/** Converts anything that was thrown to an error of the catalogue. */
export function toImgbatchError(thrown: unknown): ImgbatchError {
  const isOurs = thrown instanceof ImgbatchError;
  if (isOurs && thrown.code === "STORAGE_FAILED") return thrown;
  const cause = isOurs ? thrown.cause : thrown;
  if (isDatabaseDamage(cause)) {
    const message = `The database is damaged: ${messageOf(cause)}. Put a backup of the data directory in place.`;
    return new ImgbatchError("STORAGE_FAILED", message, { cause });
  }
  if (isOurs) return thrown;
  const message = messageOf(thrown);
  const part = brokenModule(thrown);
  if (part !== null)
    return new ImgbatchError("MODULE_UNUSABLE", `${part} does not load here: ${message.split("\n")[0]}`, {
      cause: thrown,
      advice: moduleAdvice(part),
    });
  return new ImgbatchError("INTERNAL", `Something went wrong inside imgbatch: ${message}`, { cause: thrown });
}

/** The compiled module that an error is about; null for any other error. */
function brokenModule(thrown: unknown): "better-sqlite3" | "sharp" | null {
  const { code } = (thrown ?? {}) as { code?: unknown };
  const message = messageOf(thrown);
  const isAbout = /Could not locate the bindings file|Could not load the "sharp" module/.test(message);
  if (!isAbout && code !== "ERR_DLOPEN_FAILED" && code !== "MODULE_NOT_FOUND") return null;
  if (/sharp/.test(message)) return "sharp";
  return /sqlite/.test(message) ? "better-sqlite3" : null;
}

/** How to get a compiled module that works. */
export function moduleAdvice(part: "better-sqlite3" | "sharp"): string {
  const where = shellWord(dirname(packageFile("package.json")));
  return part === "sharp"
    ? `install imgbatch again on this system, with optional packages (or: npm --prefix ${where} install --no-save --include=optional sharp)`
    : `npm --prefix ${where} rebuild better-sqlite3 (it fetches the file for this Node from GitHub; without it, it needs a compiler and Python)`;
}

const messageOf = (thrown: unknown) => (thrown instanceof Error ? thrown.message : String(thrown));

/** The exit code of an error. */
export function exitCodeOf({ code, because = "" }: ImgbatchError): number {
  const { exit } = errorEntry(code);
  // A service that cannot use its upstream for want of a key or of money says so as a trouble that passes.
  const cause = exit === "temporary" && isWaitingCode(because) ? WAITING_CODES[because] : exit;
  return EXIT_CODES[cause].code;
}

/** The one document of `--json` for a failed command. Never shows an API key. */
export function errorDocument(error: ImgbatchError) {
  const { code, message, param, requestId, details } = error;
  return {
    ok: false,
    error: {
      code,
      message: hideApiKeys(message),
      ...(param === undefined ? {} : { param: hideApiKeys(param) }),
      ...(requestId === undefined ? {} : { request_id: hideApiKeys(requestId) }),
      ...(details === undefined ? {} : { details: details.map(hideApiKeys) }),
    },
    exit_code: exitCodeOf(error),
  };
}

/** The one document of `--json` for a finished command. A list stays a list. */
export function resultDocument({ json, exitCode = EXIT_CODES.ok.code }: CommandResult): unknown {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return json;
  return { ok: exitCode === EXIT_CODES.ok.code, ...json, exit_code: exitCode };
}

/**
 * The lines on stderr for an error, with the service's code and request id. The last line is the next step, except with
 * `--quiet`. No line can move the cursor or show an API key.
 */
function errorLines(
  error: ImgbatchError,
  options: { verbose: boolean; quiet: boolean; red: (text: string) => string; typed: Typed },
): string[] {
  const { verbose, quiet, red, typed } = options;
  const { message, details = [] } = error;
  return [
    `${red("error:")} ${safeLine(message)}`,
    ...details.filter((line) => !message.includes(line)).map((line) => `  ${safeLine(line)}`),
    ...(error.code === "INTERNAL" ? stackLines(error) : verbose ? causeLines(error) : []),
    ...originLines(error),
    ...(quiet ? [] : stepLines(adviceFor(error, typed), typed).map(safeLine)),
  ];
}

/** The code and request id to quote to the operator of the service; empty for errors that are not the service's. */
export function originLines({ code, requestId }: ImgbatchError): string[] {
  const isTheirs = Object.hasOwn(SERVICE_ERRORS, code) || code.startsWith("HTTP_") || requestId !== undefined;
  if (!isTheirs) return [];
  return [`code: ${code}${requestId === undefined ? "" : `, request id: ${safeLine(requestId)}`}`];
}

function stackLines(error: ImgbatchError): string[] {
  const { stack } = error.cause instanceof Error ? error.cause : error;
  return (stack ?? "").split("\n").slice(1).map(safeLine);
}

const DEEPEST = 4;

/** The causes of an error, one line each. */
function causeLines(error: ImgbatchError): string[] {
  const lines: string[] = [];
  let { cause } = error;
  for (let depth = 0; cause instanceof Error && depth < DEEPEST; depth++, cause = cause.cause)
    if (cause.message !== "" && !error.message.includes(cause.message))
      lines.push(`  because: ${safeLine(cause.message)}`);
  return lines;
}
