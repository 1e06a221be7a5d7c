import { ImgbatchError } from "../contract/errors.ts";
import { REQUEST_ID_HEADER } from "../contract/routes.ts";
import { backoffMs } from "../kernel/backoff.ts";
import type { Clock } from "../kernel/clock.ts";
import { answerError, isRefusal } from "./answer-errors.ts";
import { networkError, Silence } from "./network-errors.ts";
import { mayPass, RETRY_POLICY, type RetryPolicy } from "./retry-policy.ts";

export interface HttpOptions {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  clock: Clock;
  random: () => number;
  /** Default: `RETRY_POLICY`. */
  retry?: RetryPolicy;
  /** How long the service may be silent, in ms; default 60 000. */
  timeoutMs?: number;
  /** Told before each pause. */
  onRetry?: (error: ImgbatchError, delayMs: number) => void;
}

export interface HttpRequest {
  method: "GET" | "POST";
  /** From the base URL on, with the query. */
  path: string;
  headers?: Readonly<Record<string, string>>;
  /** JSON text. */
  body?: string;
  timeoutMs?: number;
  /** Default: as the policy says. */
  maxRetries?: number;
  /** Its reason is thrown, as it is. */
  signal?: AbortSignal | undefined;
  /** The request makes something: when it is not known whether it arrived, `SUBMISSION_UNKNOWN` says so. */
  submits?: boolean;
  /** Errors that this request is sent again for, besides those of the policy and within its limits. */
  alsoRetry?: (error: ImgbatchError) => boolean;
}

export interface JsonAnswer {
  json: unknown;
  headers: Headers;
  requestId: string | undefined;
}

/** Reads an answer of 2xx or 416. `alive` tells that bytes arrived, which restarts the clock of silence. */
export type ReadAnswer<T> = (response: Response, alive: () => void) => Promise<T>;

/** Sends requests to one service with one key. */
export interface Http {
  readonly baseUrl: string;
  /** Sends and reads JSON. Errors: the service's own, `NETWORK`, `BAD_RESPONSE`, `SUBMISSION_UNKNOWN`. */
  json(request: HttpRequest): Promise<JsonAnswer>;
  /** Sends and gives the answer to `read`; when that breaks, `request` is asked again (for another range). */
  stream<T>(request: () => Promise<HttpRequest>, read: ReadAnswer<T>): Promise<T>;
}

const DEFAULT_TIMEOUT_MS = 60_000;

export function createHttp(options: HttpOptions): Http {
  const policy = options.retry ?? RETRY_POLICY;

  async function stream<T>(next: () => Promise<HttpRequest>, read: ReadAnswer<T>): Promise<T> {
    let mayHaveArrived = false;
    for (let attempt = 1; ; attempt++) {
      const request = await next();
      const outcome = await tryOnce(options, request, read);
      if ("value" in outcome) return outcome.value;
      mayHaveArrived ||= outcome.mayHaveArrived;
      const { error } = outcome;
      const delayMs = error.retryAfterMs ?? backoffMs(attempt, policy.backoff, options.random);
      const isPassing = mayPass(error, policy) || request.alsoRetry?.(error) === true;
      const again = isPassing && delayMs <= policy.longestPauseMs;
      if (!again || attempt > (request.maxRetries ?? policy.maxRetries)) {
        throw request.submits && mayHaveArrived && leavesDoubt(error) ? unknownOutcome(error) : error;
      }
      options.onRetry?.(error, delayMs);
      await options.clock.sleep(delayMs, request.signal);
    }
  }

  return {
    baseUrl: options.baseUrl,
    stream,
    json: (request) => stream(async () => request, readJson),
  };
}

type Outcome<T> = { value: T } | { error: ImgbatchError; mayHaveArrived: boolean };

async function tryOnce<T>(
  options: HttpOptions,
  request: HttpRequest,
  read: ReadAnswer<T>,
): Promise<Outcome<T>> {
  request.signal?.throwIfAborted();
  const silence = new AbortController();
  const limitMs = request.timeoutMs ?? options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  const timer = setTimeout(() => silence.abort(new Silence(limitMs)), limitMs);
  try {
    const response = await fetch(options.baseUrl + request.path, {
      method: request.method,
      headers: headersOf(options, request),
      // A redirected POST would lose its body without a word.
      redirect: request.method === "GET" ? "follow" : "manual",
      signal: request.signal ? AbortSignal.any([silence.signal, request.signal]) : silence.signal,
      ...(request.body === undefined ? {} : { body: request.body }),
    });
    if (response.ok || (response.status === 416 && request.headers?.range !== undefined)) {
      return { value: await read(response, () => timer.refresh()) };
    }
    const error = answerError(response, await response.text(), options.clock.nowMs());
    return { error, mayHaveArrived: error.httpStatus >= 500 && !isRefusal(error) };
  } catch (thrown) {
    if (request.signal?.aborted) throw request.signal.reason;
    const broken = silence.signal.aborted ? silence.signal.reason : thrown;
    // An answer that was given up half-read would keep its connection.
    silence.abort();
    if (broken instanceof ImgbatchError)
      return { error: broken, mayHaveArrived: broken.code === "BAD_RESPONSE" };
    return networkError(broken, options.baseUrl);
  } finally {
    clearTimeout(timer);
  }
}

function headersOf(options: HttpOptions, request: HttpRequest): Record<string, string> {
  return {
    authorization: `Bearer ${options.apiKey}`,
    accept: "application/json, */*;q=0.5",
    "user-agent": "imgbatch",
    ...(request.body === undefined ? {} : { "content-type": "application/json" }),
    ...request.headers,
  };
}

const readJson: ReadAnswer<JsonAnswer> = async (response) => {
  const requestId = response.headers.get(REQUEST_ID_HEADER) ?? undefined;
  const text = await response.text();
  try {
    return { json: JSON.parse(text), headers: response.headers, requestId };
  } catch (cause) {
    const message = `The service answered HTTP ${response.status} with something that is not JSON. Is the base URL right?`;
    throw new ImgbatchError("BAD_RESPONSE", message, { cause, requestId, httpStatus: response.status });
  }
};

/** After a request that may have arrived, only a refusal of the request itself proves that nothing was made. */
function leavesDoubt(error: ImgbatchError): boolean {
  return error.httpStatus < 400 || error.httpStatus === 429 || error.httpStatus >= 500;
}

function unknownOutcome(error: ImgbatchError): ImgbatchError {
  const message = `It is not known whether the service took the batch: ${error.message}`;
  const { httpStatus, requestId, retryAfterMs } = error;
  return new ImgbatchError("SUBMISSION_UNKNOWN", message, {
    cause: error,
    httpStatus,
    requestId,
    retryAfterMs,
  });
}
