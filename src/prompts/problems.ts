import { ImgbatchError } from "../contract/errors.ts";
import { formatProblem, type Problem } from "./problem.ts";

/** More problems than a person mends at once. In a file of a wrong format every line is one. */
const MOST_SHOWN = 200;

/** Collects the problems of an input. All are counted; the first ones are kept to be shown. */
export class Problems {
  readonly #shown: Problem[] = [];
  #count = 0;

  get count(): number {
    return this.#count;
  }

  add(fileLine: Pick<Problem, "file" | "line">, field: string | null, message: string): void {
    this.#count++;
    if (this.#shown.length < MOST_SHOWN) this.#shown.push({ ...fileLine, field, message });
  }

  /** Returns the first ones, by file in the given order, then by line. */
  shown(files: readonly string[]): Problem[] {
    return this.#shown.toSorted(
      (a, b) => files.indexOf(a.file) - files.indexOf(b.file) || (a.line ?? 0) - (b.line ?? 0),
    );
  }

  /** Throws `INVALID_INPUT` when there are any. */
  throwIfAny(files: readonly string[] = []): void {
    if (this.#count === 0) return;
    const shown = this.shown(files);
    const hidden = this.#count - shown.length;
    const more = hidden === 0 ? [] : [`and ${hidden} more, which are shown when these are right`];
    const count = this.#count === 1 ? "1 problem" : `${this.#count} problems`;
    throw new ImgbatchError("INVALID_INPUT", `${count} in the input; nothing was sent.`, {
      details: [...shown.map(formatProblem), ...more],
    });
  }
}
