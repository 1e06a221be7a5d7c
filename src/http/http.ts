import { ImgbatchError, SERVICE_ERRORS } from "../contract/errors.ts";
import { IDEMPOTENCY_REPLAYED_HEADER, REQUEST_ID_HEADER } from "../contract/routes.ts";
import type { Clock } from "../kernel/clock.ts";
import { hideUsedKeys, hideUsedKeysIn, watchKey } from "../kernel/hide-keys.ts";
import { jsonExcess, MOST_JSON_LEVELS } from "../kernel/json.ts";
import { backoffMs } from "../kernel/pacing.ts";
import { followRedirects } from "./redirects.ts";
import { mayPass, RETRY_POLICY } from "./retries.ts";
import {
  type Answer,
  type AnswerHeaders,
  boundedBytes,
  boundedText,
  ConnectionError,
  type StreamedBody,
  send,
} from "./transport.ts";

/**
 * The cause of a `BAD_RESPONSE` that does not come from the service itself but from something before it, such as the
 * sign-in page of a network.
 */
class NotTheService extends Error {}

/** Whether something other than the service has answered. The service may be back a moment later. */
export function isFromElsewhere(error: unknown): error is ImgbatchError {
  return error instanceof ImgbatchError && error.cause instanceof NotTheService;
}

export interface JsonAnswer {
  json: unknown;
  headers: AnswerHeaders;
  requestId: string | undefined;
  /** Size of the text after decompression. */
  bytes: number;
}

/** Parsed JSON takes many times the memory of its text, and is written again level by level. */
const JSON_BOUNDS = { maxDepth: MOST_JSON_LEVELS, maxElements: 1_000_000 };
const EXCESS = { depth: "levels", elements: "elements" };

/**
 * Reads a JSON body of at most `maxBytes`, with the keys that this process sends removed. Throws `BAD_RESPONSE` for a
 * longer body, for one with too many levels or elements, and for other text.
 */
export async function readJson(response: Answer, maxBytes: number): Promise<JsonAnswer> {
  const header = response.headers.get(REQUEST_ID_HEADER);
  const requestId = header === null ? undefined : hideUsedKeys(header);
  const facts = { requestId, httpStatus: response.status };
  const data = await boundedBytes(response.body, maxBytes);
  if (data === null) throw new ImgbatchError("BAD_RESPONSE", "The service's answer has no end.", facts);
  const excess = jsonExcess(data, JSON_BOUNDS);
  if (excess !== null)
    throw new ImgbatchError("BAD_RESPONSE", `The service's answer has too many ${EXCESS[excess]}.`, facts);
  const text = new TextDecoder().decode(data);
  try {
    const json = hideUsedKeysIn(JSON.parse(text));
    return { json, headers: response.headers, requestId, bytes: data.length };
  } catch (cause) {
    const message = `The service answered HTTP ${response.status} with something that is not JSON. Is the base URL right?`;
    throw new ImgbatchError("BAD_RESPONSE", message, {
      cause: new NotTheService("not JSON", { cause }),
      ...facts,
    });
  }
}

interface HttpOptions {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  /** Called before each attempt, before the key leaves. Must set its own time limit. Throws when the address is no longer the service's. */
  confirm?: (signal: AbortSignal) => Promise<void>;
  /** Reads the service's answers outside 2xx. */
  readError: ReadError;
  clock: Clock;
  random: () => number;
  /** Default: that of `RETRY_POLICY`. */
  maxRetries?: number;
  /** How long the service may be silent, or slower than 8 KiB/s, in ms; default 60 000. */
  timeoutMs?: number;
  /** Called before each pause. `maybePaid`: this attempt may be billed, and so may the next. */
  onRetry?: (error: ImgbatchError, delayMs: number, maybePaid: boolean) => void;
  /** Called after each attempt. */
  onAttempt?: (attempt: Attempt) => void;
}

interface SentRequest {
  method: string;
  /** From the base URL on, with the query. */
  path: string;
}

/** An answer outside 2xx. */
interface ErrorAnswer {
  error: ImgbatchError;
  /** Whether the service itself refused the request, so that nothing was made. Decides where the status is 5xx. */
  isRefusal: boolean;
}

/** Reads an answer outside 2xx; `text` is its body, of at most 1 MiB. `nowMs` is needed to read a date. */
type ReadError = (response: Answer, text: string, request: SentRequest, nowMs: number) => ErrorAnswer;

/** One request that was sent. It holds neither key nor body. */
export interface Attempt extends SentRequest {
  /** Null when no answer came. */
  status: number | null;
  /** Until the headers came, or until the attempt failed. */
  durationMs: number;
  requestId: string | undefined;
}

export interface HttpRequest {
  method: "GET" | "POST" | "DELETE";
  /** From the base URL on, with the query. */
  path: string;
  headers?: Readonly<Record<string, string>>;
  /** JSON text, or a body that is made while it is sent. */
  body?: string | StreamedBody;
  timeoutMs?: number;
  /** Default: the limit of the policy. */
  maxRetries?: number;
  /** Its reason is thrown, as it is. */
  signal?: AbortSignal | undefined;
  /** Ends an attempt under way instead of `signal`. `signal` then only prevents further attempts. */
  answerSignal?: AbortSignal | undefined;
  /** The request makes something: `SUBMISSION_UNKNOWN` is thrown when it is not known whether it arrived. */
  submits?: boolean;
  /**
   * Each successful answer is billed: after one that breaks off, one attempt is left. A service that names the header
   * `Idempotency-Replayed` has taken the key of the request, and bills it once.
   */
  bills?: boolean;
  /** The answer may come from another host that the service redirects to; the key is not sent there. */
  elsewhere?: boolean;
  /** The answer is quiet most of the time: any byte of it counts as progress. */
  isQuiet?: boolean;
  /** Selects errors after which this request is sent again, besides those of the policy and within its limits. */
  alsoRetry?: (error: ImgbatchError) => boolean;
}

/** Reads an answer of 2xx or 416. */
type ReadAnswer<T> = (response: Answer) => Promise<T>;

/** Sends requests to one service with one key. */
export interface Http {
  readonly baseUrl: string;
  /** Sends and reads JSON. Errors: the service's own, `NETWORK`, `BAD_RESPONSE`, `SUBMISSION_UNKNOWN`. */
  json(request: HttpRequest): Promise<JsonAnswer>;
  /** Sends a request and gives the answer to `read`. After a failure `request` is called again: the next may ask for another range. */
  stream<T>(request: () => Promise<HttpRequest>, read: ReadAnswer<T>): Promise<T>;
}

const DEFAULT_TIMEOUT_MS = 60_000;
/** Far more than the longest list. A longer answer is not read. */
const MAX_JSON_BYTES = 32 * 1024 * 1024;
const MAX_ERROR_BYTES = 1024 * 1024;
const NEVER = new AbortController().signal;

/**
 * What is known of a request that brought no usable answer. `not-sent`: nothing has left. `refused`: nothing was made.
 * `unknown`: it may have arrived. `paid`: a success had begun and broke off, and another attempt is billed, too.
 */
type Certainty = "not-sent" | "refused" | "unknown" | "paid";

/** Ranked from best to worst; the worst of all attempts counts. `attemptsLeft`: how often a billed request may still be sent. */
const CERTAINTIES: Record<Certainty, { rank: number; mayHaveArrived: boolean; attemptsLeft: number }> = {
  "not-sent": { rank: 0, mayHaveArrived: false, attemptsLeft: Infinity },
  refused: { rank: 1, mayHaveArrived: false, attemptsLeft: Infinity },
  unknown: { rank: 2, mayHaveArrived: true, attemptsLeft: Infinity },
  paid: { rank: 3, mayHaveArrived: true, attemptsLeft: 1 },
};

/** `isReplayed`: the service gave the answer before and will give no other one. */
type Outcome<T> = { value: T } | { error: ImgbatchError; certainty: Certainty; isReplayed?: boolean };

export function createHttp(options: HttpOptions): Http {
  const { maxRetries = RETRY_POLICY.maxRetries } = options;
  watchKey(options.apiKey);

  async function stream<T>(next: () => Promise<HttpRequest>, read: ReadAnswer<T>): Promise<T> {
    let worst: Certainty = "not-sent";
    let lastAttempt = Infinity;
    /** The first attempt that may have been paid without a whole answer. */
    let paidAttempt: number | null = null;
    for (let attempt = 1; ; attempt++) {
      const request = await next();
      const outcome = await tryOnce(options, request, read);
      if ("value" in outcome) return outcome.value;
      const { error, certainty } = outcome;
      if (CERTAINTIES[certainty].rank > CERTAINTIES[worst].rank) worst = certainty;
      const { mayHaveArrived } = CERTAINTIES[worst];
      lastAttempt = Math.min(lastAttempt, 1 + (request.maxRetries ?? maxRetries));
      if (request.bills) lastAttempt = Math.min(lastAttempt, attempt + CERTAINTIES[certainty].attemptsLeft);
      if (request.bills && certainty === "paid") paidAttempt ??= attempt;
      const delayMs = error.retryAfterMs ?? backoffMs(attempt, RETRY_POLICY.backoff, options.random);
      const isPassing = mayPass(error) || request.alsoRetry?.(error) === true;
      const again =
        isPassing && !outcome.isReplayed && delayMs <= RETRY_POLICY.longestPauseMs && attempt < lastAttempt;
      const isPaidAgain = paidAttempt !== null && (again || attempt > paidAttempt);
      const doubtful = request.bills && mayHaveArrived ? withDoubt(error) : error;
      const told = paidAttempt === null ? doubtful : perhapsPaid(doubtful, isPaidAgain);
      if (!again)
        throw request.submits && mayHaveArrived && leavesDoubt(error) ? unknownOutcome(error) : told;
      options.onRetry?.(told, delayMs, isPaidAgain);
      await options.clock.sleep(delayMs, request.signal);
    }
  }

  return {
    baseUrl: options.baseUrl,
    stream,
    json: (request) =>
      stream(
        async () => request,
        (response) => readJson(response, MAX_JSON_BYTES),
      ),
  };
}

async function tryOnce<T>(
  options: HttpOptions,
  request: HttpRequest,
  read: ReadAnswer<T>,
): Promise<Outcome<T>> {
  request.signal?.throwIfAborted();
  const report = watchAttempt(options, request);
  const signal = request.answerSignal ?? request.signal ?? NEVER;
  let answer: Answer | undefined;
  let hasSucceeded = false;
  try {
    const silenceMs = request.timeoutMs ?? options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    await options.confirm?.(signal);
    answer = await sendWithin(options, request, { signal, silenceMs });
    report(answer);
    const replayed = answer.headers.get(IDEMPOTENCY_REPLAYED_HEADER);
    hasSucceeded = answer.ok && replayed === null;
    if (answer.ok || (answer.status === 416 && request.headers?.range !== undefined))
      return { value: await read(answer) };
    const text = (await boundedText(answer.body, MAX_ERROR_BYTES)) ?? "";
    const { error, isRefusal } = options.readError(answer, text, request, options.clock.nowMs());
    const certainty = error.httpStatus >= 500 && !isRefusal ? "unknown" : "refused";
    return { error, certainty, isReplayed: replayed === "true" };
  } catch (thrown) {
    report(null);
    // An answer that is left half-read would keep its connection.
    answer?.cancel();
    if (signal.aborted) throw signal.reason;
    if (thrown instanceof ConnectionError) {
      const certainty = !thrown.isSent ? "not-sent" : hasSucceeded ? "paid" : "unknown";
      return { error: networkError(thrown, options.baseUrl), certainty };
    }
    if (!(thrown instanceof ImgbatchError)) throw thrown;
    return { error: thrown, certainty: thrown.code === "BAD_RESPONSE" ? "unknown" : "refused" };
  }
}

/** Returns a function that reports the attempt once, with its answer or with null for none. */
function watchAttempt(
  { clock, onAttempt }: HttpOptions,
  { method, path }: HttpRequest,
): (response: Answer | null) => void {
  const startMs = clock.nowMs();
  let isReported = onAttempt === undefined;
  return (response) => {
    if (isReported) return;
    isReported = true;
    const requestId = response?.headers.get(REQUEST_ID_HEADER) ?? undefined;
    onAttempt?.({
      method,
      path: hideUsedKeys(path),
      status: response?.status ?? null,
      durationMs: clock.nowMs() - startMs,
      requestId: requestId === undefined ? undefined : hideUsedKeys(requestId),
    });
  };
}

/**
 * Sends a request and follows the redirects of a GET: another method would lose its body, so its redirect is returned as it
 * is. The key never goes to another origin, and is not sent again after one. Throws `BAD_RESPONSE`, naming the target, for
 * a circle and for another origin that is not allowed.
 */
function sendWithin(
  { baseUrl, apiKey }: HttpOptions,
  { method, path, headers, body, elsewhere, isQuiet = false }: HttpRequest,
  { signal, silenceMs }: { signal: AbortSignal; silenceMs: number },
): Promise<Answer> {
  const own = new URL(baseUrl).origin;
  let isAway = false;
  const hop = (url: URL) =>
    send(url, {
      method,
      body,
      signal,
      silenceMs,
      isQuiet,
      headers: {
        ...(isAway ? {} : { authorization: `Bearer ${apiKey}` }),
        accept: "application/json, */*;q=0.5",
        "user-agent": "imgbatch",
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
    });
  const start = new URL(baseUrl + path);
  if (method !== "GET") return hop(start);
  return followRedirects(start, hop, (next, { status: httpStatus, isCircle }) => {
    const cause = new NotTheService("a redirect");
    const where = hideUsedKeys(next.origin + next.pathname);
    if (next.origin !== own) isAway = true;
    if (next.origin !== own && !elsewhere) {
      const message = `The service redirects to ${where}. If you trust that, give its address as the base URL.`;
      throw new ImgbatchError("BAD_RESPONSE", message, { httpStatus, cause });
    }
    if (isCircle) {
      const message = `The service redirects again and again, the last time to ${where}.`;
      throw new ImgbatchError("BAD_RESPONSE", message, { httpStatus, cause });
    }
  });
}

function networkError({ isSent, message, code, cause }: ConnectionError, baseUrl: string): ImgbatchError {
  return isSent
    ? new ImgbatchError("NETWORK", `The connection to ${baseUrl} broke: ${message}`, { cause })
    : new ImgbatchError("NETWORK", `No answer from ${baseUrl} (${message})`, { cause, because: code });
}

/**
 * Only a refusal of the request itself proves that nothing was made. A body that cannot be read from the disk is named as
 * such: its repair comes before any other, and the next request has the same key.
 */
function leavesDoubt(error: ImgbatchError): boolean {
  if (error.code === "SAVE_FAILED") return false;
  return error.httpStatus < 400 || error.httpStatus === 429 || error.httpStatus >= 500;
}

function unknownOutcome(error: ImgbatchError): ImgbatchError {
  const { code, httpStatus, requestId, retryAfterMs } = error;
  // The code of the service helps more than `SUBMISSION_UNKNOWN` alone.
  const theirs = Object.hasOwn(SERVICE_ERRORS, code) && !error.message.includes(code) ? ` (${code})` : "";
  const message = `It is not known whether the service took the batch: ${error.message}${theirs}`;
  return new ImgbatchError("SUBMISSION_UNKNOWN", message, {
    cause: error,
    httpStatus,
    requestId,
    retryAfterMs,
  });
}

/** An earlier attempt may have arrived, though this one did not. */
function withDoubt(error: ImgbatchError): ImgbatchError {
  if (error.because === undefined || error.code !== "NETWORK") return error;
  return new ImgbatchError(error.code, error.message, { ...error, cause: error.cause, because: undefined });
}

function perhapsPaid(error: ImgbatchError, isTwice: boolean): ImgbatchError {
  const what = `An answer had begun and broke off: the image may be billed${isTwice ? " twice" : ""}.`;
  const { cause, message } = error;
  return new ImgbatchError(error.code, `${message.replace(/\.?$/, ".")} ${what}`, { ...error, cause });
}
