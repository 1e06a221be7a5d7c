import type { ZodError } from "zod";
import { ImgbatchError, type ServiceErrorCode } from "../contract/errors.ts";
import { lowerFirst } from "../kernel/text.ts";

/** An error about one field: the message names it, and so does `param`. */
export function fieldError(code: ServiceErrorCode, param: string, problem: string): ImgbatchError {
  return new ImgbatchError(code, `${param}: ${problem}`, { param });
}

/** The first type error of a body, or of the part of it that `prefix` names. */
export function schemaProblem(error: ZodError, code: ServiceErrorCode, prefix = ""): ImgbatchError {
  const issue = error.issues[0];
  const path = issue?.path ?? [];
  const param = path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`;
    return text === "" ? String(part) : `${text}.${String(part)}`;
  }, "");
  const at = [prefix, param].filter((part) => part !== "").join(".");
  return fieldError(code, at || "body", lowerFirst(issue?.message ?? "is not valid"));
}
