import { ImgbatchError } from "../../contract/errors.ts";
import { didYouMean } from "../../kernel/did-you-mean.ts";
import { parseDuration } from "../../kernel/durations.ts";
import { parseUsd } from "../../kernel/money.ts";

/** An option of a command, as commander takes it. */
export interface OptionSpec {
  /** Commander's notation: `-o, --output <dir>`, `--detach`, `--metadata <k=v...>`. */
  flags: string;
  description: string;
  /** Shown in the help; the command applies it. */
  default?: string;
  /** May be given several times; the command gets a list. */
  repeatable?: true;
  /** The words that it takes, for the completion of shells. The command checks them. */
  choices?: readonly string[];
}

/** The options of a command, by camel-case name, as they were typed. */
export type TypedOptions = Readonly<Record<string, unknown>>;

/** The text of an option; undefined when it was not given. */
export function textOption(options: TypedOptions, name: string): string | undefined {
  const value = options[name];
  return typeof value === "string" ? value : undefined;
}

export function flagOption(options: TypedOptions, name: string): boolean {
  return options[name] === true;
}

/** A time in ms. Throws `USAGE` for anything that is none. */
export function durationOption(options: TypedOptions, name: string, flag: string): number | undefined {
  return readOption(options, name, flag, "write a time such as 30s, 45m or 1h30m", parseDuration);
}

/** The same for a time that something lasts: none at all is no time. */
export function positiveDurationOption(
  options: TypedOptions,
  name: string,
  flag: string,
): number | undefined {
  const advice = "write a time above 0 such as 30s, 45m or 1h30m";
  return readOption(options, name, flag, advice, (text) => parseDuration(text) || null);
}

/** An amount in micro-dollars. */
export function usdOption(options: TypedOptions, name: string, flag: string): number | undefined {
  return readOption(options, name, flag, "write an amount in US dollars such as 5 or 0.25", parseUsd);
}

export function wholeOption(
  options: TypedOptions,
  name: string,
  flag: string,
  range: { min: number; max: number },
): number | undefined {
  const { min, max } = range;
  return readOption(options, name, flag, `write a whole number from ${min} to ${max}`, (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max ? value : null;
  });
}

/** One of some words. Throws `USAGE` for any other, with the one that may be meant. */
export function choiceOption<T extends string>(
  options: TypedOptions,
  name: string,
  flag: string,
  choices: readonly T[],
): T | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  const choice = choices.find((each) => each === text);
  if (choice !== undefined) return choice;
  const meant = didYouMean(text, choices);
  const advice = meant === null ? "" : ` Did you mean ${meant}?`;
  const message = `${flag} ${JSON.stringify(text)}: use ${listed(choices)}.${advice}`;
  throw new ImgbatchError("USAGE", message, { param: flag });
}

function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

/** Reads an option with `read`, which answers null for what it does not take; then `USAGE` with the advice. */
export function readOption<T>(
  options: TypedOptions,
  name: string,
  flag: string,
  advice: string,
  read: (text: string) => T | null,
): T | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  const value = read(text);
  if (value === null)
    throw new ImgbatchError("USAGE", `${flag} ${JSON.stringify(text)}: ${advice}.`, { param: flag });
  return value;
}

/** The pairs of a repeated `k=v` option; null when there are none. */
export function pairsOption(
  options: TypedOptions,
  name: string,
  flag: string,
): Record<string, string> | null {
  const values = options[name];
  if (!Array.isArray(values)) return null;
  const pairs: Record<string, string> = {};
  for (const text of values) {
    const at = String(text).indexOf("=");
    if (at < 1)
      throw new ImgbatchError("USAGE", `${flag} ${JSON.stringify(text)}: write name=value.`, { param: flag });
    pairs[String(text).slice(0, at)] = String(text).slice(at + 1);
  }
  return pairs;
}

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const MOMENT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/i;

/** A time in a form that the service takes: a day (UTC), a moment with its offset, or how long ago, such as `24h`. */
export function instantOption(
  options: TypedOptions,
  name: string,
  flag: string,
  nowMs: number,
): string | undefined {
  const advice =
    "write a day such as 2030-01-31, a time such as 2030-01-31T18:00:00Z, or how long ago such as 24h";
  return readOption(options, name, flag, advice, (text) => {
    if ((DAY.test(text) || MOMENT.test(text)) && !Number.isNaN(Date.parse(text))) return text;
    const agoMs = /[a-z]$/.test(text) ? parseDuration(text) : null;
    return agoMs === null ? null : new Date(nowMs - agoMs).toISOString().replace(/\.\d+Z$/, "Z");
  });
}
