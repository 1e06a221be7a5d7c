import { type ItemErrorCode, isRefusalCode } from "../../contract/statuses.ts";
import { ProviderError, type Trouble } from "../../domain/ports/image-provider.ts";
import { PRIVATE_ADDRESS } from "../../http/addresses.ts";
import { type AnswerHeaders, type ConnectionError, headersOf } from "../../http/transport.ts";
import {
  announcedMs,
  type ErrorFacts,
  ownersWords,
  ownMatches,
  readErrorFacts,
  upstreamWords,
} from "./error-facts.ts";

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
