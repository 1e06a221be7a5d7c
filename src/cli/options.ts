import { ImgbatchError } from "../contract/errors.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { parseDuration } from "../kernel/durations.ts";
import { parseUsd } from "../kernel/money.ts";
import { truncateCodePoints } from "../kernel/text.ts";
import { MOST_SHOWN_CHARS } from "../prompts/problems.ts";

/** The headings in the help of a command with many options, in their order. */
export const GROUPS = {
  prompts: "Prompts:",
  picture: "The picture:",
  money: "Money:",
  waiting: "Waiting:",
  directory: "The directory:",
  reports: "Reports:",
  service: "The service:",
} as const;

/** How an option is typed, and what the help, its JSON form and the completion of shells say of it. */
export interface OptionSpec {
  /** Commander's notation: `-o, --output <dir>`, `--detach`, `--downloaded [yes|no]`. */
  flags: string;
  description: string;
  /** Shown in the help. A command applies it itself: an option that was not typed is undefined. */
  default?: string;
  /** Where it stands in the help of a command with many options. Default: among the first. */
  group?: keyof typeof GROUPS;
  /** The option may be repeated; its value is a list. */
  repeatable?: true;
  /** The text of an option that is typed without its value. */
  preset?: string;
  /** The words that it takes. */
  choices?: readonly string[];
  /** Words for the completion of shells, where other values are possible, too. */
  suggestions?: readonly string[];
}

/** What was typed for an option. */
export type Typed = string | true | readonly string[];

/** An option of a command: one entry of its table. `T` is the type of its value. */
export interface Option<T = unknown> extends OptionSpec {
  /** Returns the value of what was typed; undefined stands for nothing. Throws `USAGE` for a wrong value. */
  read(typed: Typed | undefined, option: { flag: string; nowMs: number }): T;
}

/** The options of a command, by the names that their values have in the code. */
export type OptionTable = Readonly<Record<string, Option>>;

/** The values of the options of a table. */
export type Values<T extends OptionTable> = {
  readonly [K in keyof T]: T[K] extends Option<infer V> ? V : never;
};

/** Reads what was typed for the options of a table, by their names. Throws `USAGE` for the first wrong value. */
export function valuesOf<T extends OptionTable>(
  table: T,
  typed: Readonly<Record<string, unknown>>,
  nowMs: number,
): Values<T> {
  const values = Object.entries(table).map(([name, option]) => [
    name,
    option.read(typed[name] as Typed | undefined, { flag: flagIn(option), nowMs }),
  ]);
  return Object.fromEntries(values) as Values<T>;
}

/** Returns the flag of the first of these options that was typed; undefined if none was. */
export function firstTyped<T extends OptionTable>(
  table: T,
  values: { readonly [K in keyof T]?: unknown },
  names: readonly (keyof T & string)[],
): `--${string}` | undefined {
  const name = names.find((each) => {
    const value: unknown = values[each];
    return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== false;
  });
  const option = name === undefined ? undefined : table[name];
  return option && flagIn(option);
}

/** Returns the long flag of an option, such as `--output`. */
export function flagIn({ flags }: Pick<OptionSpec, "flags">): `--${string}` {
  return namesIn({ flags }).find((name) => name.startsWith("--")) as `--${string}`;
}

/** Returns the names of an option, such as `-o` and `--output`. */
export function namesIn({ flags }: Pick<OptionSpec, "flags">): string[] {
  return flags.match(/(?<![\w<[-])--?[\w-]+/g) ?? [];
}

type Words = Omit<OptionSpec, "repeatable">;

/** An option without a value: true when it is typed. */
export function flag(words: Words): Option<boolean> {
  return { ...words, read: (typed) => typed === true };
}

/** Any text. */
export function text(words: Words): Option<string | undefined> {
  return { ...words, read: (typed) => (typeof typed === "string" ? typed : undefined) };
}

/** A text that may be left out: true without it. */
export function optionalText(words: Words): Option<string | true | undefined> {
  return { ...words, read: (typed) => (typeof typed === "object" ? undefined : typed) };
}

/** The texts of an option that may be repeated. Empty when it was not typed. */
export function list(words: Words): Option<readonly string[]> {
  const read = (typed?: Typed) => (typeof typed === "object" ? typed : []);
  return { ...words, repeatable: true, read };
}

/**
 * A text that `read` turns into a value; null for a wrong one. Then reading throws `USAGE` with the advice, and with what
 * `meant` takes the text for.
 */
export function parsed<T>(
  words: Words,
  advice: string,
  read: (text: string, nowMs: number) => T | null,
  meant: (text: string) => string | null = () => null,
): Option<T | undefined> {
  return {
    ...words,
    read: (typed, { flag, nowMs }) => {
      const given = typed === true ? words.preset : typed;
      if (typeof given !== "string") return undefined;
      const value = read(given, nowMs);
      if (value === null) throw wrongValue(flag, given, `${advice}.`, meant(given.trim()));
      return value;
    },
  };
}

/** One of these words. */
export function choice<const T extends string>(
  words: Omit<Words, "choices"> & { choices: readonly T[] },
): Option<T | undefined> {
  const { choices } = words;
  const read = (text: string) => choices.find((each) => each === text) ?? null;
  return parsed(words, `use ${listed(choices)}`, read, (text) => didYouMean(text, choices));
}

/** A duration in ms, such as `1h30m`. */
export function duration(words: Words): Option<number | undefined> {
  return parsed(words, "write a time such as 30s, 45m or 1h30m", parseDuration);
}

/** A duration above 0, in ms. */
export function positiveDuration(words: Words): Option<number | undefined> {
  const advice = "write a time above 0 such as 30s, 45m or 1h30m";
  return parsed(words, advice, (typed) => parseDuration(typed) || null);
}

/** An amount in micro-dollars, typed in dollars. */
export function usd(words: Words): Option<number | undefined> {
  return parsed(words, "write an amount in US dollars such as 5 or 0.25", parseUsd);
}

/** A whole number of a range. */
export function whole(words: Words & { min: number; max: number }): Option<number | undefined> {
  const { min, max, ...spec } = words;
  return parsed(spec, `write a whole number from ${min} to ${max}`, (typed) => {
    const value = /^\d+$/.test(typed) ? Number(typed) : Number.NaN;
    return value >= min && value <= max ? value : null;
  });
}

/**
 * A time in the form that the service reads: a day (UTC), an RFC 3339 time, or the time that was `24h` before now.
 */
export function instant(words: Words): Option<string | undefined> {
  const advice =
    "write a day such as 2030-01-31, a time such as 2030-01-31T18:00:00Z, or how long ago such as 24h";
  return parsed(words, advice, (typed, nowMs) => {
    if (timeSpan(typed) !== null) return typed.replace(" ", "T");
    const agoMs = /[a-z]$/.test(typed) ? parseDuration(typed) : null;
    return agoMs === null ? null : new Date(nowMs - agoMs).toISOString().replace(/\.\d+Z$/, "Z");
  });
}

/** The name of a file or directory. Not empty, and not `-`: stdout has the result. */
export function path(words: Words): Option<string | undefined> {
  const read = (typed: Typed | undefined, { flag }: { flag: string }) => {
    if (typeof typed !== "string") return undefined;
    requireShortNames(typed, flag);
    if (typed !== "" && typed !== "-") return typed;
    const message = `${flag}: name a file or a directory (./- for one that is called -); standard output is for the result`;
    throw new ImgbatchError("USAGE", message, { param: flag });
  };
  return { ...words, read };
}

function wrongValue(flag: string, text: string, advice: string, right: string | null): ImgbatchError {
  const more = right === null ? "" : ` Did you mean ${right}?`;
  return new ImgbatchError("USAGE", `${flag} ${JSON.stringify(text)}: ${advice}${more}`, {
    param: flag,
    meant: right === null ? undefined : { typed: text, right },
  });
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

function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
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

/** Only for commands whose output is one document. */
const JSON_OPTION = {
  json: flag({ flags: "--json", description: "print one JSON document on stdout, also for an error" }),
};

const GLOBAL_OPTIONS = {
  quiet: flag({ flags: "-q, --quiet", description: "print only errors on stderr" }),
  verbose: flag({
    flags: "-v, --verbose",
    description: "print more: each request with its status, time and id",
  }),
  noColor: flag({ flags: "--no-color", description: "use no colours (also NO_COLOR)" }),
  events: text({
    flags: "--events <file>",
    description: "write events, one JSON object per line; - for standard output",
  }),
  progress: choice({
    flags: "--progress <kind>",
    description: "how to show progress: auto, plain or none",
    default: "auto",
    choices: ["auto", "plain", "none"],
  }),
  baseUrl: text({
    flags: "--base-url <url>",
    description: "the URL of the service (also IMGBATCH_BASE_URL); without it, the embedded service",
  }),
  apiKeyFile: text({
    flags: "--api-key-file <file>",
    description: "read the API key from a file (also IMGBATCH_API_KEY)",
  }),
  apiKeyStdin: flag({ flags: "--api-key-stdin", description: "read the API key from standard input" }),
  data: parsed(
    {
      flags: "--data <dir>",
      description: "the data directory of the embedded service (also IMGBATCH_DATA)",
    },
    "name a directory",
    (typed) => {
      requireShortNames(typed, "--data");
      return typed;
    },
  ),
  config: text({
    flags: "--config <file>",
    description: "the configuration file; none: no file",
    default: "imgbatch.config.json",
  }),
};

/** Returns the options that may stand before or after the name of a command. `json` is false for one without `--json`. */
export function globalTable({ json }: { json?: false | undefined } = {}): OptionTable {
  return json === false ? GLOBAL_OPTIONS : { ...JSON_OPTION, ...GLOBAL_OPTIONS };
}

/**
 * Returns the values of the global options that were typed before and after each name on the way to the command. The last
 * one wins. Throws `USAGE` for options that contradict each other.
 */
export function mergeGlobals(...typed: readonly Readonly<Record<string, unknown>>[]): GlobalOptions {
  const table = { ...JSON_OPTION, ...GLOBAL_OPTIONS };
  const { noColor, progress = "auto", ...others } = valuesOf(table, Object.assign({}, ...typed), 0);
  if (others.json && others.events === "-")
    throw new ImgbatchError(
      "USAGE",
      "--json and --events - both want standard output: give --events a file.",
    );
  return { ...others, color: !noColor, progress };
}
