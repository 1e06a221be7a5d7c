import { ImgbatchError } from "../../../contract/errors.ts";
import { formatUsd, parseUsd } from "../../../kernel/money.ts";
import { hasUnstorableText } from "../../../kernel/text.ts";
import type { Admin } from "../../../service/admin.ts";
import { nextCommand, type Whereabouts } from "../../result/next-command.ts";

const NAME_CHARS = 100;
const NAMES_SHOWN = 10;

/** The groups of `admin usage`. */
export const USAGE_GROUPS = ["day", "model", "provider"] as const;

/** Returns the error for a wrong argument. Its message names the argument, the typed text and a right value. */
export function wrongArgument(argument: string, text: string, advice: string): ImgbatchError {
  const message = `${argument} ${JSON.stringify(text)}: ${advice}.`;
  return new ImgbatchError("USAGE", message, { param: argument });
}

/** Reads an amount of at least `minMicroUsd`, and returns micro-dollars. Throws `USAGE`. */
export function readUsd(argument: string, text: string, minMicroUsd: 0 | 1): number {
  const amount = parseUsd(text);
  if (amount !== null && amount >= minMicroUsd) return amount;
  const range = `from ${formatUsd(minMicroUsd)} to ${formatUsd(Number.MAX_SAFE_INTEGER)}`.replaceAll("$", "");
  const advice = `write an amount in US dollars ${range}, with at most 6 decimals, such as 5 or 0.25`;
  throw wrongArgument(argument, text, advice);
}

/** Reads the name of a new account or key. Throws `USAGE`. */
export function readName(argument: string, text: string): string {
  const length = Array.from(text).length;
  const isPlain = !/\p{Cc}|^\s|\s$/u.test(text) && !hasUnstorableText(text);
  if (length > 0 && length <= NAME_CHARS && isPlain) return text;
  const advice = `write 1 to ${NAME_CHARS} characters, with no control characters and no space at the ends`;
  throw wrongArgument(argument, text, advice);
}

/** The advice for an unknown name: it lists the known ones. */
export function oneOf(names: readonly string[]): string {
  const more = names.length > NAMES_SHOWN ? ", …" : "";
  return `write one of ${names.slice(0, NAMES_SHOWN).join(", ")}${more}`;
}

export async function unknownAccount(
  argument: string,
  name: string,
  admin: Admin,
  where: Whereabouts,
): Promise<ImgbatchError> {
  const names = (await admin.accounts()).map((account) => account.name);
  const advice =
    names.length > 0 ? oneOf(names) : `make it: ${nextCommand(where, "admin", "accounts", "create", name)}`;
  return wrongArgument(argument, name, `no account has this name; ${advice}`);
}
