import { ImgbatchError, SERVICE_ERRORS } from "../contract/errors.ts";
import { IDEMPOTENCY_REPLAYED_HEADER, REQUEST_ID_HEADER } from "../contract/routes.ts";
import { backoffMs } from "../kernel/backoff.ts";
import type { Clock } from "../kernel/clock.ts";
import { hideUsedKeys, watchKey } from "../kernel/hide-keys.ts";
import { linkSignals } from "../kernel/linked-signal.ts";
import { progressWithin, type TransferWatch, watchTransfer } from "../kernel/transfer-rate.ts";
import { boundedText } from "./bounded-body.ts";
import { type JsonAnswer, readJson } from "./json-answer.ts";
import { networkError, Silence } from "./network-errors.ts";
import { sendWithin } from "./redirects.ts";
import { mayPass, RETRY_POLICY, type RetryPolicy } from "./retry-policy.ts";
import type { Answer } from "./send.ts";
import { type StreamedBody, sendable } from "./streamed-body.ts";

export interface HttpOptions {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  /** Called before each attempt, before the key leaves. Throws when the address is no longer the service's. */
  confirm?: (signal: AbortSignal) => Promise<void>;
  /** Reads the service's answers outside 2xx. */
  readError: ReadError;
  clock: Clock;
  random: () => number;
  /** Default: `RETRY_POLICY`. */
  retry?: RetryPolicy;
  /** How long the service may be silent, or slower than 8 KiB/s, in ms; default 60 000. */
  timeoutMs?: number;
  /** Called before each pause. `maybePaid`: this attempt may be billed, and so may the next. */
  onRetry?: (error: ImgbatchError, delayMs: number, maybePaid: boolean) => void;
  /** Called after each attempt. */
  onAttempt?: (attempt: Attempt) => void;
}

export interface SentRequest {
  method: string;
  /** From the base URL on, with the query. */
  path: string;
}

/** An answer outside 2xx. */
export interface ErrorAnswer {
  error: ImgbatchError;
  /** Whether the service itself refused the request, so that nothing was made. Decides where the status is 5xx. */
  isRefusal: boolean;
}

/** Reads an answer outside 2xx; `text` is its body, of at most 1 MiB. `nowMs` is needed to read a date. */
export type ReadError = (response: Answer, text: string, request: SentRequest, nowMs: number) => ErrorAnswer;

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
  /** Selects errors after which this request is sent again, besides those of the policy and within its limits. */
  alsoRetry?: (error: ImgbatchError) => boolean;
}

/**
 * Reads an answer of 2xx or 416. It must call `moved` with the size of each piece: a transfer that is too slow ends the
 * attempt. `json` reads a body of at most `maxBytes` as JSON and removes the key from it.
 */
export type ReadAnswer<T> = (
  response: Answer,
  moved: (bytes: number) => void,
  json: (maxBytes: number) => Promise<JsonAnswer>,
) => Promise<T>;

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
export function createHttp(options: HttpOptions): Http {
  const policy = options.retry ?? RETRY_POLICY;
  watchKey(options.apiKey);

  async function stream<T>(next: () => Promise<HttpRequest>, read: ReadAnswer<T>): Promise<T> {
    let mayHaveArrived = false;
    /** The first attempt whose answer broke off after it may have been billed. */
    let paidAttempt: number | null = null;
    for (let attempt = 1; ; attempt++) {
      const request = await next();
      const outcome = await tryOnce(options, request, read);
      if ("value" in outcome) return outcome.value;
      mayHaveArrived ||= outcome.mayHaveArrived;
      if (request.bills && outcome.answerBroke) paidAttempt ??= attempt;
      const { error } = outcome;
      const delayMs = error.retryAfterMs ?? backoffMs(attempt, policy.backoff, options.random);
      const isPassing = mayPass(error, policy) || request.alsoRetry?.(error) === true;
      const lastAttempt = 1 + Math.min(request.maxRetries ?? policy.maxRetries, paidAttempt ?? Infinity);
      const again =
        isPassing && !outcome.isReplayed && delayMs <= policy.longestPauseMs && attempt < lastAttempt;
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
        (_response, _moved, read) => read(MAX_JSON_BYTES),
      ),
  };
}

/**
 * `answerBroke`: the answer began with a success and did not arrive whole, and another attempt is billed, too. `isReplayed`:
 * the service gave the answer before and will give no other one.
 */
type Outcome<T> =
  | { value: T }
  | { error: ImgbatchError; mayHaveArrived: boolean; answerBroke?: boolean; isReplayed?: boolean };

async function tryOnce<T>(
  options: HttpOptions,
  request: HttpRequest,
  read: ReadAnswer<T>,
): Promise<Outcome<T>> {
  request.signal?.throwIfAborted();
  const silence = new AbortController();
  const limitMs = request.timeoutMs ?? options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  const inSeconds = `${Math.round(limitMs / 1000)} s`;
  const timer = setTimeout(() => silence.abort(new Silence(`no answer within ${inSeconds}`)), limitMs);
  let watch: TransferWatch | undefined;
  let answerBroke = false;
  const ending = request.answerSignal ?? request.signal;
  const { signal, unlink } = linkSignals(silence.signal, ...(ending ? [ending] : []));
  const body = sendable(request.body);
  const { baseUrl } = options;
  const report = watchAttempt(options, request);
  try {
    await options.confirm?.(signal);
    const response = await sendWithin(
      { baseUrl, elsewhere: request.elsewhere ?? false },
      baseUrl + request.path,
      {
        method: request.method,
        headers: { ...headersOf(options), ...body.headers, ...request.headers },
        body: body.body,
        signal,
      },
    );
    report(response);
    clearTimeout(timer);
    const tooSlow = () => silence.abort(new Silence(`less than 8 KiB/s came within ${inSeconds}`));
    const transfer = watchTransfer(progressWithin(limitMs), tooSlow);
    watch = transfer;
    const replayed = response.headers.get(IDEMPOTENCY_REPLAYED_HEADER);
    answerBroke = response.ok && replayed === null;
    if (response.ok || (response.status === 416 && request.headers?.range !== undefined)) {
      const asJson = (maxBytes: number) => readJson(response, maxBytes, transfer.moved);
      return { value: await read(response, transfer.moved, asJson) };
    }
    const text = (await boundedText(response, MAX_ERROR_BYTES, transfer.moved)) ?? "";
    const { error, isRefusal } = options.readError(response, text, request, options.clock.nowMs());
    const mayHaveArrived = error.httpStatus >= 500 && !isRefusal;
    return { error, mayHaveArrived, isReplayed: replayed === "true" };
  } catch (thrown) {
    report(null);
    if (ending?.aborted) throw ending.reason;
    const own = body.failure();
    // Our request body failed midway, so the service cannot have acted on it.
    if (own !== null) throw own.reason;
    const broken = silence.signal.aborted ? silence.signal.reason : thrown;
    // An answer that is left half-read would keep its connection.
    silence.abort();
    if (broken instanceof ImgbatchError)
      return { error: broken, mayHaveArrived: broken.code === "BAD_RESPONSE" };
    return { ...networkError(broken, options.baseUrl), answerBroke };
  } finally {
    clearTimeout(timer);
    watch?.stop();
    unlink();
    body.stop();
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

function headersOf(options: HttpOptions): Record<string, string> {
  return {
    authorization: `Bearer ${options.apiKey}`,
    accept: "application/json, */*;q=0.5",
    "user-agent": "imgbatch",
  };
}

/** Only a refusal of the request itself proves that nothing was made. */
function leavesDoubt(error: ImgbatchError): boolean {
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
