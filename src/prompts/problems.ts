import { type ErrorDetails, ImgbatchError } from "../contract/errors.ts";
import { truncateCodePoints } from "../kernel/text.ts";

/** The file and the line of a prompt. */
export interface FileLine {
  /** The file as the caller named it; `<stdin>` for standard input. */
  file: string;
  /** From 1. */
  line: number;
}

/** A problem in the input. Its message also gives the right form. */
export interface Problem {
  file: string;
  /** Null when it is about the file as a whole. */
  line: number | null;
  /** Null when it is about the line as a whole. */
  field: string | null;
  message: string;
}

/** What repairs a problem that is the only one. */
type Remedy = Pick<ErrorDetails, "advice" | "meant">;

/** Reports a problem of the row that is being read. */
export type Report = (field: string | null, message: string) => void;

export function formatProblem({ file, line, field, message }: Problem): string {
  return `${file}${line === null ? "" : `:${line}`}: ${field === null ? "" : `${field}: `}${message}`;
}

/** No message repeats more of what was written. */
export const MOST_SHOWN_CHARS = 200;

/** More problems than a person mends at once. In a file of a wrong format every line is one. */
const MOST_SHOWN = 200;

const FIX_FILES = "fix the files above, or name others, and run the command again";
const FIX_FLAGS = "change these options, and run the command again";

/** Collects the problems of an input. All are counted; the first ones are kept to be shown. */
export class Problems {
  readonly #shown: Problem[] = [];
  #count = 0;
  /** The problems of the line that was read last: each variant of its variables has the same ones. */
  readonly #ofLine = new Set<string>();
  #line = "";
  /** Why the rest of the input is not known; null when all of it was read. */
  #cut: string | null = null;
  #remedy: Remedy = {};

  get count(): number {
    return this.#count;
  }

  /** Whether no further problem would be shown. */
  get isFull(): boolean {
    return this.#count >= MOST_SHOWN;
  }

  /** Whether a problem of this field of a line is shown. */
  has({ file, line }: FileLine, field: string): boolean {
    return this.#shown.some((each) => each.file === file && each.line === line && each.field === field);
  }

  add(
    fileLine: Pick<Problem, "file" | "line">,
    field: string | null,
    message: string,
    remedy: Remedy = {},
  ): void {
    const line = `${fileLine.file}:${fileLine.line}`;
    if (line !== this.#line) this.#ofLine.clear();
    this.#line = line;
    const problem = `${field}: ${message}`;
    if (this.#ofLine.has(problem)) return;
    this.#ofLine.add(problem);
    this.#count++;
    this.#remedy = this.#count === 1 ? remedy : {};
    const name = field === null ? null : truncateCodePoints(field, MOST_SHOWN_CHARS, "…");
    if (this.#shown.length < MOST_SHOWN) this.#shown.push({ ...fileLine, field: name, message });
  }

  /** Says why the rest of the input was not read. */
  cut(reason: string): void {
    this.#cut = reason;
  }

  /** Returns the first ones, by file in the given order, then by line. */
  shown(files: readonly string[]): Problem[] {
    return this.#shown.toSorted(
      (a, b) => files.indexOf(a.file) - files.indexOf(b.file) || (a.line ?? 0) - (b.line ?? 0),
    );
  }

  /** Throws `INVALID_INPUT` when there are any. `advice` repairs all of them; default: the usual one. */
  throwIfAny(files: readonly string[] = [], advice: string | undefined = this.#remedy.advice): void {
    if (this.#count === 0) return;
    const shown = this.shown(files);
    const hidden = this.#count - shown.length;
    const more = hidden === 0 ? [] : [`and ${hidden} more, which are shown when these are right`];
    const count = this.#count === 1 ? "1 problem" : `${this.#count} problems`;
    const isOfFiles = shown.every(({ line }) => line === null);
    const isOfFlags = shown.every(({ file }) => file.startsWith("--"));
    throw new ImgbatchError("INVALID_INPUT", `${count} in the input; nothing was sent.`, {
      advice: advice ?? (isOfFlags ? FIX_FLAGS : isOfFiles ? FIX_FILES : undefined),
      meant: this.#remedy.meant,
      details: [...shown.map(formatProblem), ...more, ...(this.#cut === null ? [] : [this.#cut])],
    });
  }
}

/** Problems of reference images, to be put behind the name of the file or the field. */
export const NOT_AN_IMAGE = "must be a PNG, JPEG or WebP image";
export const OTHER_TYPE = `${NOT_AN_IMAGE}; its first bytes show another type`;
export const NOT_BASE64 = "must be standard Base64, padded and without a data: prefix";

export function tooLarge(bytes: number, maxBytes: number): string {
  return `has ${bytes} bytes; at most ${maxBytes} are allowed`;
}

/** The problem of a path that is a URL; null for every other path. */
export function urlProblem(path: string): string | null {
  if (!/^https?:\/\//i.test(path)) return null;
  return `${truncateCodePoints(path, MOST_SHOWN_CHARS, "…")} is a URL, and URLs are not supported here; download it first`;
}
