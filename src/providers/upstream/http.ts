import { lookup as systemLookup } from "node:dns";
import type { Dispatcher } from "undici";
import { ProviderError } from "../../domain/ports/image-provider.ts";
import { type LongJson, parseLongJson } from "../../kernel/json/long-json.ts";
import { aside } from "../../kernel/yield.ts";
import type { AdapterDeps } from "./adapter.ts";
import { ambiguous, answerError, upstreamTold } from "./classify.ts";
import {
  beforeFirstByte,
  type Connections,
  headersOf,
  openConnections,
  PRIVATE_ADDRESS,
  readUpTo,
  type UpstreamHeaders,
} from "./connections.ts";
import { errorOf } from "./error-facts.ts";
import { readJson, textAt } from "./read-json.ts";
import type { RequestBody } from "./request-body.ts";
import { IdleTimer } from "./time-limit.ts";

export interface UpstreamRequest {
  method: "GET" | "POST" | "DELETE";
  /** From the base URL on, with the query. */
  path: string;
  headers: Readonly<Record<string, string>>;
  body?: RequestBody;
  /** The caller's texts in the body: an error that repeats them is not judged by them. */
  asked?: string;
  /** The answer shows something that has a `name`, and may hold the `error` of it. Default: an `error` is one. */
  isOperation?: boolean;
  /** A success needs no body. */
  mayBeEmpty?: boolean;
}

/** A success whose body comes piece by piece. */
export interface OpenAnswer {
  status: number;
  headers: UpstreamHeaders;
  body: AsyncIterable<Buffer>;
}

/** An answer of any status. */
export interface UpstreamAnswer {
  status: number;
  headers: UpstreamHeaders;
  bytes: Buffer;
}

/** An image has at most 64 MiB, 86 MiB as Base64; an answer may hold several. */
const MAX_ANSWER_BYTES = 384 * 1024 * 1024;
/** No more is read of an error, and not for longer. */
const MAX_ERROR_BYTES = 256 * 1024;
const ERROR_BODY_MS = 10_000;
/** Only images are larger. Whatever is said about a failure is read at once. */
const MAX_SMALL_BYTES = 64 * 1024;

export interface UpstreamHttpOptions {
  /** The provider's name. */
  name: string;
  baseUrl: string;
  /** The most requests at once. */
  concurrency: number;
  /** The most bytes of an answer that is read whole. Default: 384 MiB. */
  maxAnswerBytes?: number;
  /** Looks up the hosts of image addresses. Default: the system's. */
  lookup?: typeof systemLookup;
}

/** Sends the requests of one provider. Nothing is sent twice, and no redirect is followed. */
export class UpstreamHttp {
  readonly name: string;
  /** Without a trailing slash. */
  readonly baseUrl: string;
  readonly connections: Connections;
  readonly lookup: typeof systemLookup;
  readonly #clock: AdapterDeps["clock"];
  readonly #maxAnswerBytes: number;

  constructor(options: UpstreamHttpOptions, deps: AdapterDeps) {
    const { name, baseUrl, concurrency, lookup = systemLookup } = options;
    this.name = name;
    this.#maxAnswerBytes = options.maxAnswerBytes ?? MAX_ANSWER_BYTES;
    this.baseUrl = baseUrl.replace(/\/+$/, "");
    this.connections = openConnections(this.baseUrl, concurrency, deps, lookup);
    this.lookup = lookup;
    this.#clock = deps.clock;
  }

  /**
   * Sends a request and returns the JSON of its answer. Rejects with `ProviderError` for every other answer, also for a
   * success that holds an error.
   */
  async json(request: UpstreamRequest, signal: AbortSignal, onSent?: () => void): Promise<unknown> {
    return (await this.exchange(request, signal, onSent)).body;
  }

  /** The same, with the headers of the answer. The body is undefined when it is empty and may be that. */
  async exchange(
    request: UpstreamRequest,
    signal: AbortSignal,
    onSent?: () => void,
  ): Promise<{ headers: UpstreamHeaders; body: unknown }> {
    const answer = await this.#ask(request, signal, onSent);
    const { headers, bytes } = answer;
    const body = readJson(bytes);
    if (bytes.length > 0 || !request.mayBeEmpty) this.#check(answer, request, body);
    return { headers, body };
  }

  /** The same as `json` for images. Calls `onAnswered` when a large answer has come, before it is read. */
  async images(
    request: UpstreamRequest,
    signal: AbortSignal,
    onSent?: () => void,
    onAnswered: (bytes: number) => void = () => {},
  ): Promise<LongJson> {
    const answer = await this.#ask(request, signal, onSent);
    if (answer.bytes.length > MAX_SMALL_BYTES) {
      onAnswered(answer.bytes.length);
      await aside();
    }
    const json = readJson(answer.bytes, parseLongJson);
    this.#check(answer, request, json?.value);
    return json as LongJson;
  }

  async #ask(request: UpstreamRequest, signal: AbortSignal, onSent?: () => void): Promise<UpstreamAnswer> {
    const url = this.#urlOf(request.path);
    const answer = await this.send(this.connections.own, url, request, this.#maxAnswerBytes, signal, onSent);
    if (!isSuccess(answer.status)) throw this.#error(answer, request.asked);
    return answer;
  }

  /** Throws for a success without JSON, or with an error in it. */
  #check(answer: UpstreamAnswer, { isOperation, asked }: UpstreamRequest, body: unknown): void {
    if (body === undefined) throw ambiguous(this.name, `HTTP ${answer.status} without JSON`, answer.status);
    const isShown = isOperation && textAt(body, "name") !== null;
    if (!isShown && errorOf(body) !== undefined) throw this.#error(answer, asked);
  }

  /**
   * Sends a request and returns its success before its body has come. Rejects like `json`. Reading the body rejects with
   * `ProviderError` when it breaks, or when nothing comes for a minute.
   */
  async open(request: Pick<UpstreamRequest, "path" | "headers">, signal: AbortSignal): Promise<OpenAnswer> {
    const url = this.#urlOf(request.path);
    const get = { method: "GET", headers: request.headers } as const;
    const idle = new IdleTimer(this.#clock, signal);
    try {
      const answer = await this.#dispatch(this.connections.own, url, get, idle.signal, () => {});
      const headers = headersOf(answer.headers);
      const status = answer.statusCode;
      if (!isSuccess(status)) throw this.#error({ status, headers, bytes: await this.#readError(answer) });
      return { status, headers, body: this.#pieces(answer.body, signal, idle) };
    } catch (error) {
      idle.end();
      signal.throwIfAborted();
      throw error instanceof ProviderError ? error : broken(this.name, error, true);
    }
  }

  /** A path may come from an upstream. Throws `ProviderError` for one that leads to another host, such as "@host". */
  #urlOf(path: string): URL {
    const address = this.baseUrl + path;
    const url = URL.canParse(address) ? new URL(address) : null;
    if (url?.origin === new URL(this.baseUrl).origin) return url;
    throw ambiguous(this.name, "an address at another host");
  }

  async *#pieces(body: AsyncIterable<Buffer>, signal: AbortSignal, idle: IdleTimer): AsyncGenerator<Buffer> {
    try {
      for await (const piece of body) {
        idle.stop();
        yield piece;
        idle.start();
      }
    } catch (error) {
      signal.throwIfAborted();
      throw broken(this.name, error, true);
    } finally {
      idle.end();
    }
  }

  #error({ status, headers, bytes }: UpstreamAnswer, asked = ""): ProviderError {
    const isHtml = /^\s*</.test(bytes.subarray(0, 64).toString("latin1"));
    return answerError(
      this.name,
      { status, headers, body: readJson(bytes), isHtml, asked },
      this.#clock.nowMs(),
    );
  }

  /**
   * Sends one request over these connections and reads the answer, at most `maxBytes` of a success. `onSent` is called
   * when there is a connection and the first byte is about to leave. Rejects with the signal's reason, with the error of
   * `onSent` or of a reference that could not be read, or with `ProviderError`: `unreachable` before, `ambiguous` after
   * the first byte.
   */
  async send(
    over: Dispatcher,
    url: URL,
    request: Pick<UpstreamRequest, "method" | "headers" | "body">,
    maxBytes: number,
    signal: AbortSignal,
    onSent: () => void = () => {},
  ): Promise<UpstreamAnswer> {
    const answer = await this.#dispatch(over, url, request, signal, onSent);
    try {
      const bytes = await this.#read(answer, maxBytes);
      return { status: answer.statusCode, headers: headersOf(answer.headers), bytes };
    } catch (error) {
      signal.throwIfAborted();
      const own = request.body?.failure() ?? null;
      if (own !== null) throw own.reason;
      throw error instanceof ProviderError ? error : broken(this.name, error, true);
    }
  }

  async #dispatch(
    over: Dispatcher,
    url: URL,
    request: Pick<UpstreamRequest, "method" | "headers" | "body">,
    signal: AbortSignal,
    onSent: () => void,
  ): Promise<Dispatcher.ResponseData> {
    signal.throwIfAborted();
    const { method, body } = request;
    const about = body && { "content-type": body.contentType, "content-length": String(await body.length()) };
    let isSent = false;
    let refusal: { reason: unknown } | null = null;
    const leaving = beforeFirstByte(() => {
      if (isSent) return;
      try {
        onSent();
      } catch (reason) {
        refusal = { reason };
        throw reason;
      }
      isSent = true;
    });
    try {
      return await over.compose(leaving).request({
        origin: url.origin,
        path: url.pathname + url.search,
        method,
        headers: { "user-agent": "imgbatch", accept: "*/*", ...request.headers, ...about },
        body: body?.whole() ?? body?.stream() ?? null,
        signal,
      });
    } catch (error) {
      signal.throwIfAborted();
      const own = refusal ?? body?.failure() ?? null;
      if (own !== null) throw own.reason;
      throw error instanceof ProviderError ? error : broken(this.name, error, isSent);
    }
  }

  /** Reads a success to its end. Any other answer is read for a short time only: its status is known already. */
  async #read(answer: Dispatcher.ResponseData, maxBytes: number): Promise<Buffer> {
    const { statusCode, body } = answer;
    if (!isSuccess(statusCode)) return this.#readError(answer);
    const whole = await readUpTo(body, maxBytes);
    if (whole !== null) return whole;
    throw ambiguous(this.name, `HTTP ${statusCode} with more than ${maxBytes} bytes`, statusCode);
  }

  async #readError({ body }: Dispatcher.ResponseData): Promise<Buffer> {
    const done = new AbortController();
    const chunks: Buffer[] = [];
    this.#clock.sleep(ERROR_BODY_MS, done.signal).then(
      () => body.destroy(),
      () => {},
    );
    await readUpTo(body, MAX_ERROR_BYTES, chunks).catch(() => {});
    done.abort();
    return Buffer.concat(chunks);
  }

  /** Ends all connections, and what still runs over them. */
  async close(): Promise<void> {
    await Promise.all([this.connections.own.destroy(), this.connections.foreign.destroy()]);
  }
}

const isSuccess = (status: number) => status >= 200 && status < 300;

function broken(name: string, error: unknown, isSent: boolean): ProviderError {
  const { code } = error as { code?: unknown };
  // The codes of the library say less than a plain word.
  const isKnown = typeof code === "string" && !code.startsWith("UND_") && code !== PRIVATE_ADDRESS;
  if (isSent) return ambiguous(name, isKnown ? code : "the connection broke");
  const from = isKnown ? code : "no connection";
  return new ProviderError("PROVIDER_ITEM_FAILED", upstreamTold(name, "unreachable", from), {
    trouble: "unreachable",
  });
}
