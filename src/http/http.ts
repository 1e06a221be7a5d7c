import { ImgbatchError, SERVICE_ERRORS } from "../contract/errors.ts";
import { REQUEST_ID_HEADER, routes } from "../contract/routes.ts";
import { hideUsedKeys, hideUsedKeysIn, watchKey } from "../kernel/api-keys.ts";
import { backoffMs } from "../kernel/backoff.ts";
import type { Clock } from "../kernel/clock.ts";
import { type JsonBounds, jsonExcess } from "../kernel/json/json-shape.ts";
import { linkSignals } from "../kernel/linked-signal.ts";
import { progressWithin, type TransferWatch, watchTransfer } from "../kernel/transfer-rate.ts";
import { boundedBytes, boundedText } from "./bounded-body.ts";
import { errorOfResponse, isRefusal } from "./error-response.ts";
import { NotTheService, networkError, Silence } from "./network-errors.ts";
import { fetchWithin } from "./redirects.ts";
import { mayPass, RETRY_POLICY, type RetryPolicy } from "./retry-policy.ts";
import { type StreamedBody, sendable } from "./streamed-body.ts";

export interface HttpOptions {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  /** Called before each attempt, and before the key leaves. It throws when the address is no longer the service's. */
  confirm?: (signal: AbortSignal) => Promise<void>;
  clock: Clock;
  random: () => number;
  /** Default: `RETRY_POLICY`. */
  retry?: RetryPolicy;
  /** How long the service may be silent, or slower than 8 KiB/s, in ms; default 60 000. */
  timeoutMs?: number;
  /** Told before each pause. `maybePaid`: the attempt may be billed, and so the next may be, too. */
  onRetry?: (error: ImgbatchError, delayMs: number, maybePaid: boolean) => void;
  /** Told after each attempt. */
  onAttempt?: (attempt: Attempt) => void;
}

/** One request that was sent, for those who want to know. It holds neither key nor body. */
export interface Attempt {
  method: string;
  /** From the base URL on, with the query. */
  path: string;
  /** Null when there was no answer. */
  status: number | null;
  /** Until its headers were there, or until it failed. */
  durationMs: number;
  requestId: string | undefined;
}

export interface HttpRequest {
  method: "GET" | "POST" | "DELETE";
  /** From the base URL on, with the query. */
  path: string;
  headers?: Readonly<Record<string, string>>;
  /** JSON text, or what makes it. */
  body?: string | StreamedBody;
  timeoutMs?: number;
  /** Default: as the policy says. */
  maxRetries?: number;
  /** Its reason is thrown, as it is. */
  signal?: AbortSignal | undefined;
  /** What ends an attempt under way, instead of `signal`, which then only keeps another one from leaving. */
  answerSignal?: AbortSignal | undefined;
  /** The request makes something: when it is not known whether it arrived, `SUBMISSION_UNKNOWN` says so. */
  submits?: boolean;
  /** Each answer with a success is billed, and there is no idempotency key: after one that breaks off, one attempt is left. */
  bills?: boolean;
  /** The answer may come from another host that the service redirects to; the key is not sent there. */
  elsewhere?: boolean;
  /** Errors that this request is sent again for, besides those of the policy and within its limits. */
  alsoRetry?: (error: ImgbatchError) => boolean;
}

export interface JsonAnswer {
  json: unknown;
  headers: Headers;
  requestId: string | undefined;
  /** Of the text, unpacked. */
  bytes: number;
}

/**
 * Reads an answer of 2xx or 416. It calls `moved` with the bytes that arrive: too few of them in the time of silence end
 * the attempt. `json` reads a body of at most `maxBytes` as JSON, with the key taken out.
 */
export type ReadAnswer<T> = (
  response: Response,
  moved: (bytes: number) => void,
  json: (maxBytes: number) => Promise<JsonAnswer>,
) => Promise<T>;

/** Sends requests to one service with one key. */
export interface Http {
  readonly baseUrl: string;
  /** Sends and reads JSON. Errors: the service's own, `NETWORK`, `BAD_RESPONSE`, `SUBMISSION_UNKNOWN`. */
  json(request: HttpRequest): Promise<JsonAnswer>;
  /** Sends and gives the answer to `read`; when that breaks, `request` is asked again (for another range). */
  stream<T>(request: () => Promise<HttpRequest>, read: ReadAnswer<T>): Promise<T>;
}

const DEFAULT_TIMEOUT_MS = 60_000;
/** Far more than the longest list; what goes on beyond is no answer. */
const MAX_JSON_BYTES = 32 * 1024 * 1024;
const MAX_ERROR_BYTES = 1024 * 1024;
/** What is parsed takes many times the memory of its text, and is written again level by level. */
const JSON_BOUNDS: JsonBounds = { maxDepth: 64, maxElements: 1_000_000 };
const EXCESS = { depth: "levels", elements: "elements" };

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
      const again = isPassing && delayMs <= policy.longestPauseMs && attempt < lastAttempt;
      const isPaidAgain = paidAttempt !== null && (again || attempt > paidAttempt);
      const told = paidAttempt === null ? error : perhapsPaid(error, isPaidAgain);
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

/** `answerBroke`: it began with a success, and did not come whole. */
type Outcome<T> = { value: T } | { error: ImgbatchError; mayHaveArrived: boolean; answerBroke?: boolean };

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
  const tell = watchAttempt(options, request);
  try {
    await options.confirm?.(signal);
    const response = await fetchWithin(
      { baseUrl, elsewhere: request.elsewhere ?? false },
      baseUrl + request.path,
      {
        method: request.method,
        headers: { ...headersOf(options), ...body.headers, ...request.headers },
        signal,
        ...body.init,
      },
    );
    tell(response);
    clearTimeout(timer);
    const tooSlow = () => silence.abort(new Silence(`less than 8 KiB/s came within ${inSeconds}`));
    const pace = watchTransfer(progressWithin(limitMs), tooSlow);
    watch = pace;
    answerBroke = response.ok;
    if (response.ok || (response.status === 416 && request.headers?.range !== undefined)) {
      const asJson = (maxBytes: number) => readJson(response, maxBytes, pace.moved);
      return { value: await read(response, pace.moved, asJson) };
    }
    const text = (await boundedText(response, MAX_ERROR_BYTES, pace.moved)) ?? "";
    const isNative = request.path.startsWith(routes.nativeModels);
    const asked = { method: request.method, isNative };
    const error = errorOfResponse(response, text, options.clock.nowMs(), asked);
    return { error, mayHaveArrived: error.httpStatus >= 500 && !isRefusal(error) };
  } catch (thrown) {
    tell(null);
    if (ending?.aborted) throw ending.reason;
    const own = body.failure();
    // It ended before its end, and no service takes half a request.
    if (own !== null) throw own.reason;
    const broken = silence.signal.aborted ? silence.signal.reason : thrown;
    // An answer that was given up half-read would keep its connection.
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

/** Tells of an attempt once: with its answer, or that there was none. */
function watchAttempt(
  { clock, onAttempt }: HttpOptions,
  { method, path }: HttpRequest,
): (response: Response | null) => void {
  const startMs = clock.nowMs();
  let isTold = onAttempt === undefined;
  return (response) => {
    if (isTold) return;
    isTold = true;
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

async function readJson(
  response: Response,
  maxBytes: number,
  moved: (bytes: number) => void,
): Promise<JsonAnswer> {
  const header = response.headers.get(REQUEST_ID_HEADER);
  const requestId = header === null ? undefined : hideUsedKeys(header);
  const facts = { requestId, httpStatus: response.status };
  const data = await boundedBytes(response, maxBytes, moved);
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

/** After a request that may have arrived, only a refusal of the request itself proves that nothing was made. */
function leavesDoubt(error: ImgbatchError): boolean {
  return error.httpStatus < 400 || error.httpStatus === 429 || error.httpStatus >= 500;
}

function unknownOutcome(error: ImgbatchError): ImgbatchError {
  const { code, httpStatus, requestId, retryAfterMs } = error;
  // A code of the service says more than that its answer is of no use.
  const theirs = Object.hasOwn(SERVICE_ERRORS, code) && !error.message.includes(code) ? ` (${code})` : "";
  const message = `It is not known whether the service took the batch: ${error.message}${theirs}`;
  return new ImgbatchError("SUBMISSION_UNKNOWN", message, {
    cause: error,
    httpStatus,
    requestId,
    retryAfterMs,
  });
}

function perhapsPaid(error: ImgbatchError, isTwice: boolean): ImgbatchError {
  const what = `An answer had begun and broke off: the image may be billed${isTwice ? " twice" : ""}.`;
  const { cause, message } = error;
  return new ImgbatchError(error.code, `${message.replace(/\.?$/, ".")} ${what}`, { ...error, cause });
}
