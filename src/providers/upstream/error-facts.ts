import { retryAfterMs, sentAtMs } from "../../http/retries.ts";
import type { AnswerHeaders } from "../../http/transport.ts";
import { parseDuration } from "../../kernel/durations.ts";
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

/** No error has more details, or violations in one of them. */
const MOST_DETAILS = 100;

/** The facts of an error body, whatever its shape. */
export interface ErrorFacts {
  /** The HTTP status that the body names; null when it names none. */
  status: number | null;
  /** All codes, types, states and reasons of the error, in capitals: `INSUFFICIENT_QUOTA`. */
  codes: readonly string[];
  /** Empty when there is none. */
  message: string;
  quotaIds: readonly string[];
  /** The models whose quota is used up. */
  models: readonly string[];
  retryDelays: readonly string[];
  /** The body shows why the content was flagged. */
  isModerated: boolean;
  /** The field of the request that the body names; null when it names none. */
  param: string | null;
}

/** Returns the `error` of a body that has one, also of a list with such a body as its first entry; else undefined. */
export function errorOf(body: unknown): unknown {
  const error = valueAt(Array.isArray(body) ? body[0] : body, "error");
  return error === null || error === false || error === "" ? undefined : error;
}

/** Reads the shapes `{error: {…}}`, `{error: "text", code?}`, `{message}`, `{detail}` and a list of these. */
export function readErrorFacts(body: unknown): ErrorFacts {
  const root = Array.isArray(body) ? body[0] : body;
  const error = errorOf(root) ?? root;
  const details = listAt(error, "details").slice(0, MOST_DETAILS);
  const code = valueAt(error, "code") ?? valueAt(root, "code");
  const texts = [
    code,
    valueAt(error, "type"),
    valueAt(error, "status"),
    ...["innererror", "inner_error"].map((inner) => valueAt(error, inner, "code")),
    ...details.map((detail) => valueAt(detail, "reason")),
  ].filter((each) => typeof each === "string" && each.length <= 100) as string[];
  const violations = details.flatMap((detail) => listAt(detail, "violations").slice(0, MOST_DETAILS));
  return {
    status: statusIn(code),
    codes: texts.map((text) => text.trim().replaceAll(/[ -]/g, "_").toUpperCase()),
    message: (messageOf(error) ?? messageOf(root) ?? "").slice(0, MAX_READ_CHARS),
    quotaIds: violations.flatMap((violation) => textAt(violation, "quotaId") ?? []),
    models: violations.flatMap((violation) => textAt(violation, "quotaDimensions", "model") ?? []),
    retryDelays: details.flatMap((detail) => textAt(detail, "retryDelay")?.slice(0, 100) ?? []),
    isModerated:
      valueAt(error, "moderation_details") !== undefined ||
      valueAt(error, "metadata", "flagged_input") !== undefined ||
      listAt(error, "metadata", "reasons").length > 0,
    param: /^[\w.[\]-]{1,100}$/.exec(textAt(error, "param") ?? "")?.[0] ?? null,
  };
}

function statusIn(code: unknown): number | null {
  const status = typeof code === "string" && /^\d{3}$/.test(code) ? Number(code) : code;
  return typeof status === "number" && Number.isInteger(status) && status >= 400 && status <= 599
    ? status
    : null;
}

function messageOf(error: unknown): string | null {
  if (typeof error === "string") return error || null;
  const fields = listAt(error, "detail")
    .slice(0, MOST_DETAILS)
    .map(fieldProblem)
    .filter((problem) => problem !== "");
  return textAt(error, "message") ?? textAt(error, "detail") ?? (fields.join("; ") || null);
}

/** FastAPI's form of a field that is wrong: `{loc: ["body", "steps"], msg}`. */
function fieldProblem(problem: unknown): string {
  const path = listAt(problem, "loc").filter((part) => typeof part === "string" || typeof part === "number");
  const words = textAt(problem, "msg") ?? "";
  return path.length === 0 || words === "" ? words : `${path.join(".")}: ${words}`;
}

/** Where an upstream may announce when to come back. */
export interface Announced {
  headers: Pick<AnswerHeaders, "get">;
  /** `RetryInfo.retryDelay`, such as `37s` or `3.957525076s`. */
  delays: readonly string[];
  message: string;
  /** The caller's texts in the request: an announcement that repeats them counts for nothing. */
  asked: string;
  /** The limit that is used up: one per day, or a shorter one. Null when the answer is about something else. */
  limit: "short" | "per-day" | null;
}

/** The vendor also sends the delay of its limits per minute with a limit per day: no delay of a day is that short. */
const SHORTEST_OF_DAY_MS = 60_000;
/** The limits whose headers tell what is left, and when they begin anew (OpenAI's documentation of rate limits). */
const HEADER_LIMITS = ["requests", "tokens"];

/** `Please try again in 1m30s.`, `Please retry in 36.962849995s.`, `resets in ~30 seconds`. */
const IN_WORDS =
  /\b(?:try again|retry|resets?) (?:in|after) ~?(\d{1,9}(?:\.\d{1,12})?) ?(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)((?:\d{1,9}(?:\.\d{1,12})?(?:ms|[smhd]))*)/gi;

/**
 * Returns the longest announced pause in ms; null when none is announced. Without one, a limit lasts until it begins anew: by
 * the headers about it, else a limit per day until the next day.
 */
export function announcedMs(announced: Announced, nowMs: number): number | null {
  const { headers, delays, message, asked, limit } = announced;
  const inHeader = Number(headers.get("retry-after-ms")?.trim() || Number.NaN);
  const inWords = ownMatches(message, IN_WORDS, asked).map(([, count = "", unit = "", rest = ""]) =>
    parseDuration(`${count}${shortUnit(unit)}${rest.toLowerCase()}`),
  );
  const shortest = limit === "per-day" ? SHORTEST_OF_DAY_MS : 0;
  const inBody = [...delays.map(parseDuration), ...inWords].filter((pause) => (pause ?? 0) >= shortest);
  const told = longest([retryAfterMs(headers, nowMs), inHeader, ...inBody]);
  if (told !== null || limit === null) return told;
  const reset = longest(HEADER_LIMITS.map((name) => resetMs(headers, name)));
  return reset ?? (limit === "per-day" ? untilPacificMidnightMs(sentAtMs(headers, nowMs)) : null);
}

function longest(pauses: readonly (number | null)[]): number | null {
  const known = pauses.filter((pause): pause is number => pause !== null && pause >= 0);
  return known.length === 0 ? null : Math.ceil(known.reduce((most, each) => Math.max(most, each)));
}

/** When a limit of which nothing is left begins anew. */
function resetMs(headers: Pick<AnswerHeaders, "get">, name: string): number | null {
  const left = headers.get(`x-ratelimit-remaining-${name}`)?.trim() ?? "0";
  const reset = headers.get(`x-ratelimit-reset-${name}`)?.trim();
  return Number(left) > 0 || !reset ? null : parseDuration(reset);
}

function shortUnit(unit: string): string {
  const lower = unit.toLowerCase();
  return lower.startsWith("ms") || lower.startsWith("milli") ? "ms" : lower.charAt(0);
}

const HOUR_MS = 3_600_000;
/** Made when it is needed, which is rare: it takes longer to make than the rest of these files to load. */
let pacific: Intl.DateTimeFormat | undefined;

/** Limits per day of the native API start again at midnight Pacific time (vendor's documentation of rate limits). */
function untilPacificMidnightMs(nowMs: number): number {
  const leftMs = 24 * HOUR_MS - pacificTimeMs(nowMs);
  // On the two days a year on which clocks change, the first guess is an hour too early or too late.
  const missedBy = pacificTimeMs(nowMs + leftMs);
  return missedBy > 12 * HOUR_MS ? leftMs + 24 * HOUR_MS - missedBy : leftMs - missedBy;
}

/** The time of day there, in ms. */
function pacificTimeMs(atMs: number): number {
  pacific ??= new Intl.DateTimeFormat("en-US", {
    timeZone: "America/Los_Angeles",
    hourCycle: "h23",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
  const parts = Object.fromEntries(
    pacific.formatToParts(atMs).map(({ type, value }) => [type, Number(value)]),
  );
  const { hour = 0, minute = 0, second = 0 } = parts;
  return ((hour * 60 + minute) * 60 + second) * 1000 + (atMs % 1000);
}
