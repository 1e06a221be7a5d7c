import { isOutOfCapacity } from "../client/retry-policy.ts";
import { isDatabaseDamage } from "../contract/data-directory.ts";
import { ERRORS, ImgbatchError } from "../contract/errors.ts";
import { EXIT_CODES } from "../contract/exit-codes.ts";
import { hideApiKeys, safeLine } from "../kernel/api-keys.ts";
import { adviceFor, NO_CAPACITY_ADVICE } from "./advice.ts";
import type { CommandResult } from "./command.ts";

/** Anything that was thrown, as an error of the catalogue. */
export function toImgbatchError(thrown: unknown): ImgbatchError {
  if (thrown instanceof ImgbatchError) return thrown;
  if (isDatabaseDamage(thrown)) return new ImgbatchError("DATA_DAMAGED", undefined, { cause: thrown });
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ImgbatchError("INTERNAL", `Something went wrong inside imgbatch: ${message}`, { cause: thrown });
}

export function exitCodeOf(error: ImgbatchError): number {
  return EXIT_CODES[ERRORS[error.code].exit].code;
}

/**
 * The one document of `--json` when a command failed. It shows no API key, whatever was said.
 * Rules: CLI-2, SECRET-6.
 */
export function errorDocument(error: ImgbatchError): object {
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

/** The one document of `--json` when a command came to its end. Lists stay lists, as their commands promise. */
export function resultDocument({ json, exitCode }: CommandResult): unknown {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return json;
  return { ok: exitCode === EXIT_CODES.ok.code, ...json, exit_code: exitCode };
}

/**
 * An error for people, on stderr; the last line says what to do. Text of others cannot move the cursor, and no line
 * shows an API key.
 * Rule: SECRET-6.
 */
export function errorLines(
  error: ImgbatchError,
  options: { verbose: boolean; red: (text: string) => string; paysAgain?: boolean },
): string[] {
  const usual = isOutOfCapacity(error) ? NO_CAPACITY_ADVICE : adviceFor(error.code, options);
  const advice = error.advice ?? usual;
  const stack = error.code === "INTERNAL" || options.verbose ? stackLines(error) : [];
  return [
    `${options.red("error:")} ${safeLine(error.message)}`,
    ...(error.details ?? []).map((line) => `  ${safeLine(line)}`),
    ...stack,
    ...(error.requestId === undefined ? [] : [`request id: ${safeLine(error.requestId)}`]),
    ...(advice === null ? [] : [`next: ${advice}`]),
  ];
}

function stackLines(error: ImgbatchError): string[] {
  const { stack } = error.cause instanceof Error ? error.cause : error;
  return (stack ?? "").split("\n").slice(1).map(safeLine);
}
