import { type ItemErrorCode, isRefusalCode } from "../../contract/statuses.ts";
import { ProviderError, type Trouble } from "../../domain/ports/image-provider.ts";
import { PRIVATE_ADDRESS } from "../../http/addresses.ts";
import { retryAfterMs, sentAtMs } from "../../http/retries.ts";
import { type AnswerHeaders, type ConnectionError, headersOf } from "../../http/transport.ts";
import { parseDuration } from "../../kernel/durations.ts";
import { errorOf, listAt, ownersWords, ownMatches, textAt, upstreamWords, valueAt } from "./answer-json.ts";

/** An answer of an upstream that is no success. */
interface ErrorAnswer {
  /** As in the answer, even when its body is the error of a success. */
  status: number;
  /** Default: none. */
  headers?: Pick<AnswerHeaders, "get">;
  /** The parsed body; undefined when it is not JSON. */
  body: unknown;
  isHtml?: boolean;
  /** The caller's texts in the request, default none. An answer may repeat them, and they decide nothing. */
  asked?: string;
}

/** `refused`: the content; `invalid`: the request; `empty`: no image. All are final. Everything else is a trouble of the provider. */
type Verdict = keyof typeof FINAL | Trouble;

/** The codes of the verdicts that are final. */
const FINAL = {
  refused: "SAFETY_BLOCKED",
  invalid: "INVALID_ARGUMENT",
  empty: "EMPTY_IMAGE_OUTPUT",
} as const satisfies Record<string, ItemErrorCode>;

const isFinal = (verdict: Verdict): verdict is keyof typeof FINAL => Object.hasOwn(FINAL, verdict);

/** Statuses of their own. The others follow their class: see `byStatus`. */
const STATUSES: Record<number, Verdict> = {
  401: "credential",
  402: "billing",
  403: "forbidden",
  404: "no-model",
  405: "no-model",
  408: "ambiguous",
  409: "ambiguous",
  410: "no-model",
  421: "failing",
  423: "failing",
  424: "failing",
  425: "failing",
  429: "limited",
  451: "refused",
  499: "ambiguous",
  502: "ambiguous",
  504: "ambiguous",
  520: "ambiguous",
  521: "ambiguous",
  522: "ambiguous",
  523: "ambiguous",
  524: "ambiguous",
};

/** Codes that say more than the status with which they come. They count with statuses below 500 only. */
const CODES: Record<string, Verdict> = {
  API_KEY_INVALID: "credential",
  API_KEY_EXPIRED: "credential",
  INVALID_API_KEY: "credential",
  INCORRECT_API_KEY: "credential",
  AUTHENTICATION_ERROR: "credential",
  INSUFFICIENT_QUOTA: "billing",
  INSUFFICIENT_CREDITS: "billing",
  INSUFFICIENT_BALANCE: "billing",
  BILLING_HARD_LIMIT_REACHED: "billing",
  BILLING_NOT_ACTIVE: "billing",
  BILLING_DISABLED: "billing",
  MODEL_NOT_FOUND: "no-model",
  // Another imgbatch, whose key is for batches only, or whose model made no image.
  REALTIME_GROUP_NOT_NATIVE: "forbidden",
  NO_IMAGE: "empty",
};

/** The statuses of error codes in answers of status 200. */
const NAMED_STATUSES: Record<string, number> = {
  INVALID_ARGUMENT: 400,
  FAILED_PRECONDITION: 400,
  INVALID_REQUEST_ERROR: 400,
  IMAGE_GENERATION_USER_ERROR: 400,
  UNAUTHENTICATED: 401,
  PERMISSION_DENIED: 403,
  NOT_FOUND: 404,
  RESOURCE_EXHAUSTED: 429,
  RATE_LIMIT_EXCEEDED: 429,
  RATE_LIMIT_ERROR: 429,
  DEADLINE_EXCEEDED: 504,
};

/** No more of a message is searched for a model. */
const MOST_CHARS = 10_000;
const NO_QUOTA = /\blimit: 0(?![\d.])/g;

/** Whole phrases, which count only as the upstream's own words. */
const PHRASES: readonly { verdict: Verdict; statuses: readonly number[]; pattern: RegExp }[] = [
  {
    verdict: "credential",
    statuses: [400],
    pattern: /API key (?:not valid|expired)|(?:incorrect|invalid) API key/gi,
  },
  {
    verdict: "refused",
    statuses: [400, 403, 422],
    pattern:
      /(?:by|of) (?:the|our) safety system|safety_violations|content (?:management )?policy|content moderation/gi,
  },
  {
    verdict: "billing",
    statuses: [400, 403, 429],
    pattern:
      /billing hard limit|(?:enable|activate) billing|billing (?:is|has been) (?:not|disabled)|billing account|credit balance is too low|credits? (?:are|is|have been) (?:depleted|exhausted)|insufficient (?:credits|funds|balance|quota)|used all available credits|spending limit/gi,
  },
  // The tier has no quota at all: waiting does not help.
  { verdict: "billing", statuses: [429], pattern: NO_QUOTA },
];

/** `must be verified to use the model`, `limit: 0, model: painter-3`: a refusal that concerns one model. */
const NAMES_MODEL = /\bmodel\b/i;

/** Our messages. Callers see an upstream's own words only of refusals and invalid requests. */
const MESSAGES: Record<Verdict, string> = {
  refused: "refused the content",
  invalid: "does not accept the request",
  empty: "made no image",
  credential: "does not accept the key",
  billing: "has no money or quota left for the key",
  forbidden: "does not permit the request",
  "no-model": "does not know the model or the address",
  limited: "takes no more requests for now",
  unreachable: "could not be reached",
  failing: "failed",
  ambiguous: "gave no answer that can be used; the image may have been made and paid",
};

/** The same where the upstream names the model. */
const OF_MODEL: Partial<Record<Verdict, string>> = {
  billing: "gives the key no quota for the model",
  forbidden: "does not permit the model",
};

/** Turns an answer into the error that it stands for. `name`: the provider. */
export function answerError(name: string, answer: ErrorAnswer, nowMs: number): ProviderError {
  const facts = readErrorFacts(answer.body);
  const status = answer.status < 300 ? statusNamedBy(facts) : answer.status;
  const verdict = verdictOf(status, facts, answer);
  const words = isFinal(verdict) ? upstreamWords(facts.message) : "";
  const isPerDay = facts.quotaIds.some((id) => id.includes("PerDay"));
  const isOfModel = concernsModel(verdict, facts, answer);
  const limit = verdict !== "limited" ? null : isPerDay ? "per-day" : "short";
  const { headers = headersOf({}), asked = "" } = answer;
  const { message, retryDelays: delays } = facts;
  return new ProviderError(
    codeOf(verdict, status),
    words ||
      (isRedirect(status)
        ? redirectWords(name, answer)
        : upstreamTold(name, verdict, `HTTP ${answer.status}`, isOfModel)),
    {
      isOfModel,
      trouble: isFinal(verdict) ? null : verdict,
      retryAfterMs: isFinal(verdict) ? null : announcedMs({ headers, delays, message, asked, limit }, nowMs),
      upstreamStatus: answer.status,
      param: facts.param,
      said: isFinal(verdict) ? null : ownersWords(facts.message),
    },
  );
}

/** Our sentence for a verdict, with what it was read from in brackets. */
function upstreamTold(name: string, verdict: Verdict, from: string, isOfModel = false): string {
  return `${name} ${(isOfModel && OF_MODEL[verdict]) || MESSAGES[verdict]} (${from}).`;
}

/** Whether a refusal of the key concerns one model only: the upstream names the model in words, or in the quota. */
function concernsModel(
  verdict: Verdict,
  { message, models }: ErrorFacts,
  { asked = "" }: ErrorAnswer,
): boolean {
  const says = (pattern: RegExp) => ownMatches(message, pattern, asked).length > 0;
  const mayBeOfModel = verdict === "forbidden" || (verdict === "billing" && says(NO_QUOTA));
  return mayBeOfModel && (models.length > 0 || NAMES_MODEL.test(message.slice(0, MOST_CHARS)));
}

/** The error for what was sent, and came back unreadable or not at all. */
export function ambiguous(name: string, from: string, upstreamStatus: number | null = null): ProviderError {
  const message = upstreamTold(name, "ambiguous", from);
  return new ProviderError("PROVIDER_ITEM_FAILED", message, { trouble: "ambiguous", upstreamStatus });
}

/** The error for a connection that broke, or was not made. */
export function broken(
  name: string,
  { code, isSent, message }: Pick<ConnectionError, "code" | "isSent" | "message">,
): ProviderError {
  // A code of the system says more than one of ours.
  const known = /^[A-Z_]+$/.test(code) && !OWN_CODES.includes(code) ? code : null;
  if (isSent) return ambiguous(name, known ?? "the connection broke");
  const from = TOLD_CODES.includes(code) ? message : (known ?? "no connection");
  return new ProviderError("PROVIDER_ITEM_FAILED", upstreamTold(name, "unreachable", from), {
    trouble: "unreachable",
  });
}

/** What the message of these says can be mended by a person: a proxy that refuses, a certificate that is not the host's. */
const TOLD_CODES: readonly string[] = [
  "PROXY",
  "CERTIFICATE",
  "CERT_HAS_EXPIRED",
  "ERR_TLS_CERT_ALTNAME_INVALID",
  "ERR_SSL_WRONG_VERSION_NUMBER",
];
const OWN_CODES: readonly string[] = [
  "PROXY",
  "CERTIFICATE",
  PRIVATE_ADDRESS,
  "SILENCE",
  "CLOSED",
  "CONNECT_TIMEOUT",
];

/** A success that holds an error without a known status has made nothing. */
function statusNamedBy({ status, codes }: ErrorFacts): number {
  return status ?? codes.map((code) => NAMED_STATUSES[code]).find((each) => each !== undefined) ?? 500;
}

function verdictOf(status: number, facts: ErrorFacts, { isHtml = false, asked = "" }: ErrorAnswer): Verdict {
  const { codes, message } = facts;
  const says = (pattern: RegExp) => ownMatches(message, pattern, asked).length > 0;
  // The state that comes with every invalid request says nothing of the content.
  if (codes.some((code) => code !== "INVALID_ARGUMENT" && isRefusalCode(code))) return "refused";
  if (status < 500) {
    if (facts.isModerated && [400, 403, 422].includes(status)) return "refused";
    const byCode = codes.map((code) => CODES[code]).find((verdict) => verdict !== undefined);
    if (byCode !== undefined) return byCode;
    const phrase = PHRASES.find(({ statuses, pattern }) => statuses.includes(status) && says(pattern));
    if (phrase !== undefined) return phrase.verdict;
    if (status === 400 && codes.includes("FAILED_PRECONDITION")) {
      return says(/location is not supported/gi) ? "forbidden" : "billing";
    }
    // HTML comes from a proxy, not from the API.
    if (status === 403 && isHtml) return "failing";
  }
  // The address is wrong, as it may be with a 404.
  if (isRedirect(status)) return "no-model";
  return STATUSES[status] ?? (status >= 400 && status < 500 ? "invalid" : "failing");
}

function codeOf(verdict: Verdict, status: number): ItemErrorCode {
  if (isFinal(verdict)) return FINAL[verdict];
  if (verdict === "limited") return "PROVIDER_RATE_LIMITED";
  return [408, 504, 524].includes(status) ? "PROVIDER_TIMEOUT" : "PROVIDER_ITEM_FAILED";
}

function isRedirect(status: number): boolean {
  return status >= 300 && status < 400;
}

/** Our words about a redirect. The rest of the address may hold a secret, so only its host is shown. */
function redirectWords(name: string, { status, headers }: ErrorAnswer): string {
  const location = headers?.get("location") ?? "";
  const host = URL.canParse(location) ? new URL(location).host : "";
  const leads = host === "" ? "elsewhere" : `to ${upstreamWords(host)}`;
  return `${name} redirects ${leads}: configure the address that it leads to as \`baseUrl\` (HTTP ${status}).`;
}

/** No more of a message is searched for what it says. */
const MOST_MESSAGE_CHARS = 64_000;
/** No error has more details, or violations in one of them. */
const MOST_DETAILS = 100;

/** The facts of an error body, whatever its shape. */
interface ErrorFacts {
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

/** Reads the shapes `{error: {…}}`, `{error: "text", code?}`, `{message}`, `{detail}` and a list of these. */
function readErrorFacts(body: unknown): ErrorFacts {
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
    message: (messageOf(error) ?? messageOf(root) ?? "").slice(0, MOST_MESSAGE_CHARS),
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
