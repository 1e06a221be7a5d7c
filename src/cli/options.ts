import { ImgbatchError } from "../contract/errors.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { parseDuration } from "../kernel/durations.ts";
import { parseUsd } from "../kernel/money.ts";
import { truncateCodePoints } from "../kernel/text.ts";
import { MOST_SHOWN_CHARS } from "../prompts/problems.ts";

/** The description of an option. */
export interface OptionSpec {
  /** Commander's notation: `-o, --output <dir>`, `--detach`, `--metadata <k=v...>`. */
  flags: string;
  description: string;
  /** Shown in the help. The command itself applies it. */
  default?: string;
  /** The option may be repeated; its value is a list. */
  repeatable?: true;
  /** The words that it takes, for the completion of shells. The command checks them. */
  choices?: readonly string[];
  /** Words for the completion of shells, where other values are possible, too. */
  suggestions?: readonly string[];
}

/** The options of a command, by camel-case name, as they were typed. */
export type TypedOptions = Readonly<Record<string, unknown>>;

/** Returns the flag of an option. */
export function flagOf(name: string): `--${string}` {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

function wrongValue(name: string, text: string, advice: string, right: string | null): ImgbatchError {
  const flag = flagOf(name);
  const more = right === null ? "" : ` Did you mean ${right}?`;
  return new ImgbatchError("USAGE", `${flag} ${JSON.stringify(text)}: ${advice}${more}`, {
    param: flag,
    meant: right === null ? undefined : { typed: text, right },
  });
}

/** The text of an option; undefined when it was not given. */
export function textOption(options: TypedOptions, name: string): string | undefined {
  const value = options[name];
  return typeof value === "string" ? value : undefined;
}

/** Returns the name of a file or directory. Throws `USAGE` for an empty one, and for `-`: stdout has the result. */
export function pathOption(options: TypedOptions, name: string): string | undefined {
  const path = textOption(options, name);
  const flag = flagOf(name);
  if (path !== undefined) requireShortNames(path, flag);
  if (path !== "" && path !== "-") return path;
  const message = `${flag}: name a file or a directory (./- for one that is called -); standard output is for the result`;
  throw new ImgbatchError("USAGE", message, { param: flag });
}

/** The longest name of a file that file systems have, in bytes. */
const MOST_NAME_BYTES = 255;

/** Throws `USAGE` for a path that no file can have, before anything is sent whose result could not be saved. */
function requireShortNames(path: string, flag: string): void {
  const longest = path.split(/[\\/]/).reduce((most, name) => Math.max(most, Buffer.byteLength(name)), 0);
  if (longest <= MOST_NAME_BYTES) return;
  const shown = truncateCodePoints(path, MOST_SHOWN_CHARS, "…");
  const message = `${flag}: ${shown}: a name of ${longest} bytes is too long; use at most ${MOST_NAME_BYTES}.`;
  throw new ImgbatchError("USAGE", message, { param: flag });
}

export function flagOption(options: TypedOptions, name: string): boolean {
  return options[name] === true;
}

/** Returns a duration in ms. Throws `USAGE` for any other text. */
export function durationOption(options: TypedOptions, name: string): number | undefined {
  return readOption(options, name, "write a time such as 30s, 45m or 1h30m", parseDuration);
}

/** Returns a duration above 0, in ms. Throws `USAGE` for any other text. */
export function positiveDurationOption(options: TypedOptions, name: string): number | undefined {
  const advice = "write a time above 0 such as 30s, 45m or 1h30m";
  return readOption(options, name, advice, (text) => parseDuration(text) || null);
}

/** Returns an amount in micro-dollars. Throws `USAGE` for any other text. */
export function usdOption(options: TypedOptions, name: string): number | undefined {
  return readOption(options, name, "write an amount in US dollars such as 5 or 0.25", parseUsd);
}

export function wholeOption(
  options: TypedOptions,
  name: string,
  range: { min: number; max: number },
): number | undefined {
  const { min, max } = range;
  return readOption(options, name, `write a whole number from ${min} to ${max}`, (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max ? value : null;
  });
}

const MOST_CONCURRENCY = 256;

/** Reads `--concurrency`. */
export function concurrencyOf(options: TypedOptions): number | undefined {
  return wholeOption(options, "concurrency", { min: 1, max: MOST_CONCURRENCY });
}

/** Returns one of the choices. Throws `USAGE` for any other text, with a suggestion. */
export function choiceOption<T extends string>(
  options: TypedOptions,
  name: string,
  choices: readonly T[],
): T | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  const choice = choices.find((each) => each === text);
  if (choice !== undefined) return choice;
  throw wrongValue(name, text, `use ${listed(choices)}.`, didYouMean(text, choices));
}

function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

/**
 * Reads an option with `read`, which returns null for a wrong value: then throws `USAGE` with the advice, and with what
 * `meant` takes the value for.
 */
export function readOption<T>(
  options: TypedOptions,
  name: string,
  advice: string,
  read: (text: string) => T | null,
  meant: (text: string) => string | null = () => null,
): T | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  const value = read(text);
  if (value === null) throw wrongValue(name, text, `${advice}.`, meant(text.trim()));
  return value;
}

const DAY_MS = 86_400_000;
const DAY = /^\d{4}-\d{2}-\d{2}$/;
const MOMENT =
  /^\d{4}-\d{2}-\d{2}[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/**
 * Reads a day, from its beginning to its end in UTC, or an RFC 3339 time with an offset, which begins and ends at once; in ms
 * since 1970. Null for any other text and for days that do not exist.
 */
export function timeSpan(text: string): { firstMs: number; endMs: number } | null {
  const upper = text.toUpperCase();
  if (!DAY.test(upper) && !MOMENT.test(upper)) return null;
  const day = upper.slice(0, 10);
  const dayMs = Date.parse(`${day}T00:00:00Z`);
  // Date.parse reads February 30 as March 2.
  if (Number.isNaN(dayMs) || !new Date(dayMs).toISOString().startsWith(day)) return null;
  if (upper === day) return { firstMs: dayMs, endMs: dayMs + DAY_MS };
  const ms = Date.parse(upper.replace(" ", "T"));
  return { firstMs: ms, endMs: ms };
}

/**
 * Returns a time in the form that the service reads: a day (UTC), an RFC 3339 time, or the time that was `24h` before
 * `nowMs`. Throws `USAGE` for any other text.
 */
export function instantOption(options: TypedOptions, name: string, nowMs: number): string | undefined {
  const advice =
    "write a day such as 2030-01-31, a time such as 2030-01-31T18:00:00Z, or how long ago such as 24h";
  return readOption(options, name, advice, (text) => {
    if (timeSpan(text) !== null) return text.replace(" ", "T");
    const agoMs = /[a-z]$/.test(text) ? parseDuration(text) : null;
    return agoMs === null ? null : new Date(nowMs - agoMs).toISOString().replace(/\.\d+Z$/, "Z");
  });
}

/** Options that every command takes. */
export interface GlobalOptions {
  json: boolean;
  quiet: boolean;
  verbose: boolean;
  color: boolean;
  progress: "auto" | "plain" | "none";
  baseUrl?: string | undefined;
  apiKeyFile?: string | undefined;
  apiKeyStdin: boolean;
  data?: string | undefined;
  config?: string | undefined;
  /** The target for the events of a run: a file, or `-` for standard output. */
  events?: string | undefined;
}

const PROGRESS = ["auto", "plain", "none"] as const;

export const JSON_OPTION: OptionSpec = {
  flags: "--json",
  description: "print one JSON document on stdout, also for an error",
};

/** Options that may stand before or after the name of any command. */
export const GLOBAL_OPTIONS: readonly OptionSpec[] = [
  { flags: "-q, --quiet", description: "print only errors on stderr" },
  { flags: "-v, --verbose", description: "print more: each request with its status, time and id" },
  { flags: "--no-color", description: "use no colours (also NO_COLOR)" },
  {
    flags: "--events <file>",
    description: "write events, one JSON object per line; - for standard output",
  },
  {
    flags: "--progress <kind>",
    description: "how to show progress: auto, plain or none",
    default: "auto",
    choices: PROGRESS,
  },
  {
    flags: "--base-url <url>",
    description: "the URL of the service (also IMGBATCH_BASE_URL); without it, the embedded service",
  },
  { flags: "--api-key-file <file>", description: "read the API key from a file (also IMGBATCH_API_KEY)" },
  { flags: "--api-key-stdin", description: "read the API key from standard input" },
  { flags: "--data <dir>", description: "the data directory of the embedded service (also IMGBATCH_DATA)" },
  {
    flags: "--config <file>",
    description: "the configuration file; none: no file",
    default: "imgbatch.config.json",
  },
];

/**
 * Merges the global options that were given before and after each name on the way to the command. The last one wins.
 * Throws `USAGE` for options that contradict each other.
 */
export function mergeGlobals(...given: readonly TypedOptions[]): GlobalOptions {
  const merged: TypedOptions = Object.assign({}, ...given);
  const progress = choiceOption(merged, "progress", PROGRESS) ?? "auto";
  const json = merged.json === true;
  if (json && merged.events === "-")
    throw new ImgbatchError(
      "USAGE",
      "--json and --events - both want standard output: give --events a file.",
    );
  return {
    json,
    quiet: merged.quiet === true,
    verbose: merged.verbose === true,
    color: given.every((each) => each.color !== false),
    progress,
    apiKeyStdin: merged.apiKeyStdin === true,
    baseUrl: textOption(merged, "baseUrl"),
    apiKeyFile: textOption(merged, "apiKeyFile"),
    data: dataOption(merged),
    config: textOption(merged, "config"),
    events: textOption(merged, "events"),
  };
}

function dataOption(typed: TypedOptions): string | undefined {
  const path = textOption(typed, "data");
  if (path !== undefined) requireShortNames(path, "--data");
  return path;
}
