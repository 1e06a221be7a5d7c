import { hideApiKeys } from "../../kernel/hide-keys.ts";
import { jsonExcess, MOST_JSON_LEVELS } from "../../kernel/json.ts";
import { multiplyToMicros } from "../../kernel/money.ts";
import { escapeControls, truncateCodePoints } from "../../kernel/text.ts";

const BOUNDS = { maxDepth: MOST_JSON_LEVELS, maxElements: 200_000 };

/** Parses JSON with `parse`. Undefined for anything else, and for what is too deep or too long to be an answer. */
export function readJson<T = unknown>(bytes: Buffer, parse: (bytes: Buffer) => T = parsed): T | undefined {
  if (jsonExcess(bytes, BOUNDS) !== null) return undefined;
  try {
    return parse(bytes);
  } catch {
    return undefined;
  }
}

function parsed<T>(bytes: Buffer): T {
  return JSON.parse(bytes.toString("utf8"));
}

/** Follows a path of fields and list indexes into JSON of unknown shape. Undefined where it ends early. */
export function valueAt(value: unknown, ...path: readonly (string | number)[]): unknown {
  let at = value;
  for (const step of path) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, step)) return undefined;
    at = (at as Record<string | number, unknown>)[step];
  }
  return at;
}

/** The text there; null when there is none, or an empty one. */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string | null {
  const text = valueAt(value, ...path);
  return typeof text === "string" && text !== "" ? text : null;
}

/** The whole number from 0 up that is there; null for anything else. */
export function countAt(value: unknown, ...path: readonly (string | number)[]): number | null {
  const count = valueAt(value, ...path);
  return typeof count === "number" && Number.isSafeInteger(count) && count >= 0 ? count : null;
}

/** The list there; empty when there is none. */
export function listAt(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const list = valueAt(value, ...path);
  return Array.isArray(list) ? list : [];
}

/** A cost in US dollars, or in a `unit` of them, a JSON number, in micro-dollars; null for anything else. */
export function costOf(cost: unknown, unit = 1): number | null {
  if (typeof cost !== "number" || !(cost >= 0)) return null;
  const micros = Number.isFinite(cost) ? multiplyToMicros([cost, unit]) : Number.NaN;
  return Number.isSafeInteger(micros) ? micros : null;
}

const MAX_CHARS = 500;
/** No more of a text is looked at, whatever is looked for. */
const MAX_READ_CHARS = 64_000;
/** No message announces more pauses, or says the same in more ways. */
const MOST_MATCHES = 100;

/** Names that an upstream gives to what belongs to its customer: projects, organisations, files, models. */
const RESOURCES =
  /\b(?:projects|organizations|locations|endpoints|models|tunedModels|deployments|files|batches|operations|cachedContents|consumers)\/[\w.:@-]+(?:\/[\w.:@-]+)*|\b(?:org|proj)[-_][A-Za-z0-9]{10,}|\bproject[ :]+\d{6,}/g;
/** Keys of well-known vendors, also those that the vendor has half hidden itself. */
const KEYS = /\b(?:sk|xai|gsk|tgp)[-_][\w*.-]{6,}|\bAIza[\w*.-]{8,}/g;

/**
 * Makes an upstream's words fit for a caller: without keys, without names of the customer's resources, without control
 * characters, and no longer than 500 characters.
 */
export function upstreamWords(text: string): string {
  // Keys are hidden before the text is cut: a part of a key would not be recognized.
  const safe = hideApiKeys(text.slice(0, MAX_READ_CHARS))
    .replace(KEYS, "[API key]")
    .replace(RESOURCES, "[name]");
  return truncateCodePoints(oneLine(safe), MAX_CHARS, "…");
}

const OWNERS_LINES = 2;
const OWNERS_LINE_CHARS = 200;

/** Returns the first two lines of an upstream's words for the owner of the service, as safe as `upstreamWords`. */
export function ownersWords(text: string): string {
  const lines = text.slice(0, MAX_READ_CHARS).split(/[\r\n]+/);
  return lines
    .map((line) => truncateCodePoints(upstreamWords(line), OWNERS_LINE_CHARS, "…"))
    .filter((line) => line !== "")
    .slice(0, OWNERS_LINES)
    .join("\n");
}

/**
 * Returns the matches of a pattern (with the flag `g`) in an upstream's message that are its own words. A match whose
 * letters are also in the caller's texts may be a repeated prompt, however it was shortened or escaped.
 */
export function ownMatches(message: string, pattern: RegExp, asked: string): RegExpExecArray[] {
  let theirs: string | undefined;
  const matches = new Map<string, RegExpExecArray>();
  for (const match of message.slice(0, MAX_READ_CHARS).matchAll(pattern)) {
    if (matches.size === MOST_MATCHES) break;
    if (!matches.has(match[0])) matches.set(match[0], match);
  }
  return [...matches.values()].filter(([phrase]) => {
    theirs ??= lettersOf(asked);
    return !theirs.includes(lettersOf(phrase));
  });
}

function lettersOf(text: string): string {
  return text
    .normalize("NFKC")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "");
}

/** Joins the lines with ` | `, and makes control characters visible. */
export function oneLine(text: string): string {
  return escapeControls(text.trim().replace(/\s*[\r\n]\s*/g, " | "));
}

/** Returns the `error` of a body that has one, also of a list with such a body as its first entry; else undefined. */
export function errorOf(body: unknown): unknown {
  const error = valueAt(Array.isArray(body) ? body[0] : body, "error");
  return error === null || error === false || error === "" ? undefined : error;
}
