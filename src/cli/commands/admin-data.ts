import { loadUnlessDefault } from "../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import { EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import { readEnvironment } from "../../environment.ts";
import { formatUsd, parseUsd } from "../../kernel/money.ts";
import { hasUnstorableText } from "../../kernel/text.ts";
import { type Admin, openAdmin } from "../../service/admin.ts";
import type { CommandContext, CommandResult } from "../command.ts";
import { configChoice, requireShared, storageOf } from "../connect/service-config.ts";
import { nextCommand, type Whereabouts } from "../output/next-step.ts";

/**
 * Opens the data directory or the shared database of a command while the work lasts. Creates a missing directory only with
 * `mayCreate`; with `readsImages`, refuses a shared database without the bucket of its images. `place` is the directory, or the URL of the database without secrets.
 */
export async function withAdmin(
  context: CommandContext,
  { readsImages = false, ...needs }: { mayCreate: boolean; readsImages?: boolean },
  work: (admin: Admin, place: string) => Promise<CommandResult> | CommandResult,
): Promise<CommandResult> {
  const { global, cwd, output } = context;
  const config = await loadUnlessDefault(configChoice(context));
  const storage = storageOf(context, config);
  if (readsImages) requireShared("all", storage);
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const { database } = storage;
  const place = database.kind === "postgres" ? database.name : directory;
  output.detail(database.kind === "postgres" ? `database: ${place}` : `data directory: ${place}`);
  const admin = await openAdmin({ directory, storage, ...needs });
  try {
    if (admin.isNew) output.note(`created the data directory: ${directory}`);
    return await work(admin, place);
  } finally {
    await admin.close();
  }
}

/** The result of a command that succeeded. */
export function done(json: unknown, lines: readonly string[]): CommandResult {
  return { exitCode: EXIT_CODES.ok.code, json, lines };
}

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

/** Converts ms since 1970 to Unix seconds, the form of the API. */
export function toSeconds(ms: number): number {
  return Math.floor(ms / 1000);
}

/** Formats a time as `2030-01-31T18:00:00Z`, for people and for `--expires`. */
export function formatMoment(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
}

const DAY_MS = 86_400_000;
const DAY = /^\d{4}-\d{2}-\d{2}$/;
const MOMENT =
  /^\d{4}-\d{2}-\d{2}[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/**
 * Reads the time at which a key expires, and returns ms since 1970. A day means the end of that day in UTC, so that the
 * key works all day. A time is RFC 3339, with an offset. Returns null for any other text and for days that do not
 * exist.
 */
export function parseExpiry(text: string): number | null {
  const upper = text.toUpperCase();
  if (!DAY.test(upper) && !MOMENT.test(upper)) return null;
  const day = upper.slice(0, 10);
  const dayMs = Date.parse(`${day}T00:00:00Z`);
  // Date.parse reads February 30 as March 2.
  if (Number.isNaN(dayMs) || !new Date(dayMs).toISOString().startsWith(day)) return null;
  if (upper === day) return dayMs + DAY_MS;
  const ms = Date.parse(upper.replace(" ", "T"));
  return Number.isNaN(ms) ? null : ms;
}
