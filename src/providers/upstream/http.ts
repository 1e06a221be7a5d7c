import { lookup as systemLookup } from "node:dns";
import type { Dispatcher } from "undici";
import { type GeneratedImages, ProviderError } from "../../domain/ports/image-provider.ts";
import { StorageUnavailable } from "../../domain/ports/storage-unavailable.ts";
import { aside } from "../../kernel/yield.ts";
import type { AdapterDeps } from "./adapter.ts";
import { AnswerImages, type ImagesJson, imagesJson, withImages } from "./answer-images.ts";
import { ambiguous, answerError, broken } from "./classify.ts";
import {
  beforeFirstByte,
  type Connections,
  headersOf,
  openConnections,
  readUpTo,
  type UpstreamHeaders,
} from "./connections.ts";
import { errorOf } from "./error-facts.ts";
import { readJson, textAt } from "./read-json.ts";
import type { UpstreamRequest } from "./request-body.ts";
import { IdleTimer } from "./time-limit.ts";

interface AboutAnswer {
  status: number;
  headers: UpstreamHeaders;
}

/** A success whose body comes piece by piece. */
export interface OpenAnswer extends AboutAnswer {
  body: AsyncIterable<Buffer>;
}

/** An answer of any status: what was read of a success, or the bytes of any other. */
export type UpstreamAnswer<T> = AboutAnswer & ({ read: T } | { error: Buffer });

/** Reads the body of a success. */
type ReadBody<T> = (body: AsyncIterable<Buffer>, about: AboutAnswer) => Promise<T>;

/** Calls for what happens to a request for images. */
export interface OnImages {
  onSent?: (() => void) | undefined;
  /** A large answer has come, before it is read. */
  onAnswered?: ((bytes: number) => void) | undefined;
}

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
  readonly #deps: AdapterDeps;

  constructor(options: UpstreamHttpOptions, deps: AdapterDeps) {
    const { name, baseUrl, concurrency, lookup = systemLookup } = options;
    this.name = name;
    this.#deps = deps;
    this.baseUrl = baseUrl.replace(/\/+$/, "");
    this.connections = openConnections(this.baseUrl, concurrency, deps, lookup);
    this.lookup = lookup;
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
    const read = (body: AsyncIterable<Buffer>) => this.beginImages(signal).readText(body);
    const { read: bytes, ...about } = await this.#ask(request, signal, read, onSent);
    const body = readJson(bytes);
    if (bytes.length > 0 || !request.mayBeEmpty) this.#check({ ...about, bytes }, request, body);
    return { headers: about.headers, body };
  }

  /**
   * The same as `json` for images: gives the JSON and its images to `read`. The result must be discarded in the end. Images
   * are decoded while they come.
   */
  async images(
    request: UpstreamRequest,
    signal: AbortSignal,
    { onSent, onAnswered = () => {} }: OnImages,
    read: (answer: ImagesJson) => GeneratedImages | Promise<GeneratedImages>,
  ): Promise<GeneratedImages> {
    const answer = await this.#ask(
      request,
      signal,
      (body, about) => {
        const images = this.beginImages(signal);
        return withImages(images, async () => {
          const { reader, bytes } = await images.readJson(body);
          if (bytes > MAX_SMALL_BYTES) {
            onAnswered(bytes);
            await aside();
          }
          const value = readJson(reader.json);
          this.#check({ ...about, bytes: reader.json }, request, value);
          return read(imagesJson(value, reader, images));
        });
      },
      onSent,
    );
    return answer.read;
  }

  /** Begins an answer with images, which takes memory. It must be discarded. */
  beginImages(signal: AbortSignal, mostInMemory?: number): AnswerImages {
    return new AnswerImages(this.name, this.#deps, signal, mostInMemory);
  }

  async #ask<T>(
    request: UpstreamRequest,
    signal: AbortSignal,
    read: ReadBody<T>,
    onSent?: () => void,
  ): Promise<AboutAnswer & { read: T }> {
    const url = this.#urlOf(request.path);
    const answer = await this.send(this.connections.own, url, request, signal, read, onSent);
    if ("error" in answer) throw this.#error({ ...answer, bytes: answer.error }, request.asked);
    return answer;
  }

  /** Throws for a success without JSON, or with an error in it. */
  #check(
    answer: AboutAnswer & { bytes: Buffer },
    { isOperation, asked }: UpstreamRequest,
    body: unknown,
  ): void {
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
    const idle = new IdleTimer(this.#deps.clock, signal);
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

  #error({ status, headers, bytes }: AboutAnswer & { bytes: Buffer }, asked = ""): ProviderError {
    const isHtml = /^\s*</.test(bytes.subarray(0, 64).toString("latin1"));
    return answerError(
      this.name,
      { status, headers, body: readJson(bytes), isHtml, asked },
      this.#deps.clock.nowMs(),
    );
  }

  /**
   * Sends one request over these connections and gives the body of a success to `read`. `onSent` is called
   * when there is a connection and the first byte is about to leave. Rejects with the signal's reason, with the error of
   * `onSent` or of a reference that could not be read, or with `ProviderError`: `unreachable` before, `ambiguous` after
   * the first byte.
   */
  async send<T>(
    over: Dispatcher,
    url: URL,
    request: Pick<UpstreamRequest, "method" | "headers" | "body">,
    signal: AbortSignal,
    read: ReadBody<T>,
    onSent: () => void = () => {},
  ): Promise<UpstreamAnswer<T>> {
    const answer = await this.#dispatch(over, url, request, signal, onSent);
    const about = { status: answer.statusCode, headers: headersOf(answer.headers) };
    try {
      if (!isSuccess(about.status)) return { ...about, error: await this.#readError(answer) };
      return { ...about, read: await read(answer.body, about) };
    } catch (error) {
      signal.throwIfAborted();
      const own = request.body?.failure() ?? null;
      if (own !== null) throw own.reason;
      if (error instanceof StorageUnavailable)
        throw ambiguous(this.name, "an image that the disk here did not take", about.status);
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

  async #readError({ body }: Dispatcher.ResponseData): Promise<Buffer> {
    const done = new AbortController();
    const chunks: Buffer[] = [];
    this.#deps.clock.sleep(ERROR_BODY_MS, done.signal).then(
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
