import type { Request } from "express";
import { ImgbatchError } from "../../contract/errors.ts";

/** A query parameter; undefined when it is absent or empty. Throws `BATCH_IMAGE_INVALID_QUERY` when repeated. */
export function queryText(request: Request, name: string): string | undefined {
  const value = request.query[name];
  if (value === undefined || value === "") return undefined;
  if (typeof value !== "string") throw invalidQuery(name, "may be given once");
  return value;
}

export function queryInteger(
  request: Request,
  name: string,
  range: { fallback: number; min: number; max: number },
): number {
  const text = queryText(request, name);
  if (text === undefined) return range.fallback;
  const value = Number(text);
  if (!/^-?\d+$/.test(text) || value < range.min || value > range.max) {
    throw invalidQuery(name, `must be an integer from ${range.min} to ${range.max}`);
  }
  return value;
}

export function queryChoice<T extends string>(
  request: Request,
  name: string,
  choices: readonly T[],
): T | undefined {
  const text = queryText(request, name);
  if (text === undefined) return undefined;
  const choice = choices.find((c) => c === text);
  if (choice === undefined) throw invalidQuery(name, `must be one of ${choices.join(", ")}`);
  return choice;
}

export function invalidQuery(name: string, problem: string): ImgbatchError {
  return new ImgbatchError("BATCH_IMAGE_INVALID_QUERY", `${name}: ${problem}`, { param: name });
}
