import { lookup as systemLookup } from "node:dns";
import { promisify } from "node:util";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import { type GeneratedImages, ProviderError } from "../../domain/ports/image-provider.ts";
import { isPrivateAddress, isPrivateHost, publicOnly } from "../../http/addresses.ts";
import { type Proxies, proxiesOf } from "../../http/proxies.ts";
import { type Answer, beginningOf, ConnectionError, Connections, send } from "../../http/transport.ts";
import { yieldToEventLoop } from "../../kernel/pacing.ts";
import { tracer } from "../../kernel/tracing.ts";
import type { AdapterDeps } from "./adapter.ts";
import {
  AnswerImages,
  answerOfEvents,
  eventsAsJson,
  type ImagesJson,
  imagesJson,
  withImages,
} from "./answer-images.ts";
import { errorOf, readJson, textAt } from "./answer-json.ts";
import { ambiguous, answerError, broken } from "./classify.ts";
import type { UpstreamRequest } from "./request-body.ts";

type AboutAnswer = Pick<Answer, "status" | "headers">;

/** Calls for what happens to a request for images. */
interface OnImages {
  onSent?: (() => void) | undefined;
  /** A large answer has come, before it is read. */
  onAnswered?: ((bytes: number) => void) | undefined;
}

/** No more is read of an error, and not for longer. */
const MAX_ERROR_BYTES = 256 * 1024;
const ERROR_BODY_MS = 10_000;
/** An open body that brings nothing for this long counts as broken. */
const SILENCE_MS = 60_000;
/** Only images are larger. Whatever is said about a failure is read at once. */
const MAX_SMALL_BYTES = 64 * 1024;

interface UpstreamHttpOptions {
  /** The provider's name. */
  name: string;
  baseUrl: string;
  /** The most requests at once. */
  concurrency: number;
  /** Further origins that requests may go to, with their headers; a `*` stands for a name, and leads to public addresses only. */
  origins?: readonly string[];
  /** Looks up the hosts of image addresses. Default: the system's. */
  lookup?: typeof systemLookup;
}

/** Sends the requests of one provider. Nothing is sent twice, and no redirect is followed. */
export class UpstreamHttp {
  readonly name: string;
  /** Without a query and a trailing slash. */
  readonly baseUrl: string;
  /** The query of the configured base URL, such as `api-version=1`, which each path gets; "" for none. */
  readonly #query: string;
  /** Leads to the configured base URL, also in a private network. */
  readonly #own: Connections;
  /** Leads to public addresses only, checked when a connection is made: a name may mean another address by then. */
  readonly #foreign: Connections;
  readonly #proxies: Proxies;
  readonly #lookup: typeof systemLookup;
  readonly #deps: AdapterDeps;
  readonly #origins: readonly string[];

  constructor(options: UpstreamHttpOptions, deps: AdapterDeps) {
    const { name, baseUrl, concurrency, origins = [], lookup = systemLookup } = options;
    this.name = name;
    this.#deps = deps;
    this.#origins = [new URL(baseUrl).origin, ...origins];
    const [start = "", ...query] = baseUrl.split("?");
    this.baseUrl = start.replace(/\/+$/, "");
    this.#query = query.join("?");
    this.#lookup = lookup;
    this.#proxies = proxiesOf(deps.secret);
    const own = { most: concurrency, proxies: this.#proxies };
    // A server on this machine or in a private network is asked directly.
    this.#own = new Connections(isPrivateHost(new URL(baseUrl).hostname) ? { most: concurrency } : own);
    this.#foreign = new Connections({ ...own, lookup: publicOnly(lookup) });
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
  ): Promise<{ headers: Answer["headers"]; body: unknown }> {
    const answer = await this.#ask(request, signal, onSent);
    return this.reading(answer, signal, async (bodyBytes) => {
      const bytes = await this.beginImages(signal).readText(bodyBytes);
      const body = readJson(bytes);
      if (bytes.length > 0 || !request.mayBeEmpty) this.#check(answer, bytes, request, body);
      return { headers: answer.headers, body };
    });
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
    const answer = await this.#ask(request, signal, onSent);
    return this.reading(answer, signal, (body) => {
      const images = this.beginImages(signal);
      return withImages(images, async () => {
        const isStream = /^text\/event-stream/i.test(answer.headers.get("content-type") ?? "");
        const { reader, bytes } = await images.readJson(isStream ? eventsAsJson(body) : body);
        if (bytes > MAX_SMALL_BYTES) {
          onAnswered(bytes);
          await yieldToEventLoop();
        }
        const json = readJson(reader.json);
        const value = isStream ? answerOfEvents(json) : json;
        this.#check(answer, reader.json, request, value);
        return read(imagesJson(value, reader, images));
      });
    });
  }

  /** Begins an answer with images, which takes memory. It must be discarded. */
  beginImages(signal: AbortSignal, mostInMemory?: number): AnswerImages {
    return new AnswerImages(this.name, this.#deps, signal, mostInMemory);
  }

  /** Sends a request to the upstream and returns its success. Rejects with `ProviderError` for any other answer. */
  async #ask(
    request: Pick<UpstreamRequest, "path" | "headers"> & Partial<UpstreamRequest>,
    signal: AbortSignal,
    onSent?: () => void,
    silenceMs?: number,
  ): Promise<Answer> {
    const url = this.#urlOf(request.path);
    if (await this.leadsInside(url))
      throw ambiguous(this.name, "an address that is not of the public internet");
    const { method = "GET" } = request;
    const facts = {
      "imgbatch.provider": this.name,
      "http.request.method": method,
      "server.address": url.hostname,
    };
    const ask = async () => {
      const sent = { ...request, headers: { ...tracer.headers(), ...request.headers } };
      const answer = await this.send(this.connectionsTo(url), url, sent, signal, onSent, silenceMs);
      tracer.note({ "http.response.status_code": answer.status });
      if (!answer.ok) throw this.#error(answer, await this.#readError(answer), request.asked);
      return answer;
    };
    return tracer.span("upstream call", facts, ask, { kind: "client" });
  }

  /** Throws for a success without JSON, or with an error in it. */
  #check(answer: AboutAnswer, bytes: Buffer, { shows, asked }: UpstreamRequest, body: unknown): void {
    if (body === undefined) throw ambiguous(this.name, `HTTP ${answer.status} without JSON`, answer.status);
    const isShown = shows !== undefined && textAt(body, ...shows) !== null;
    if (!isShown && errorOf(body) !== undefined) throw this.#error(answer, bytes, asked);
  }

  /**
   * Sends a GET and returns its success before its body has come. Rejects like `json`. Reading the body rejects with
   * `ProviderError` when it breaks, or when nothing comes for a minute.
   */
  async open(request: Pick<UpstreamRequest, "path" | "headers">, signal: AbortSignal): Promise<Answer> {
    const answer = await this.#ask(request, signal, undefined, SILENCE_MS);
    return { ...answer, body: this.#pieces(answer) };
  }

  /** A path or an address may come from an upstream. Throws `ProviderError` for one that leads to another host, such as "@host". */
  #urlOf(path: string): URL {
    if (this.mayAsk(path)) return new URL(this.#addressOf(path));
    throw ambiguous(this.name, "an address at another host");
  }

  /** Whether a path below the base URL, or an address, may be asked, with the headers that carry the key. */
  mayAsk(path: string): boolean {
    const address = this.#addressOf(path);
    const url = URL.canParse(address) ? new URL(address) : null;
    const isNamed = url?.username !== "" || url.password !== "";
    return url !== null && !isNamed && this.#origins.some((origin) => isOf(origin, url));
  }

  #addressOf(path: string): string {
    if (/^https?:\/\//i.test(path)) return path;
    const query = this.#query === "" ? "" : `${path.includes("?") ? "&" : "?"}${this.#query}`;
    return this.baseUrl + path + query;
  }

  /** The connections that lead to an address: only public ones, unless its origin is named without a `*`. */
  connectionsTo(url: URL): Connections {
    return this.#origins.includes(url.origin) ? this.#own : this.#foreign;
  }

  /**
   * Whether an address is known not to be of the public internet, and its origin is not named without a `*`. Behind a proxy no
   * connection is ours to check, so the name is looked up here, where that is possible.
   */
  async leadsInside(url: URL): Promise<boolean> {
    const { origin, hostname } = url;
    if (this.#origins.includes(origin)) return false;
    if (isPrivateHost(hostname)) return true;
    if (this.#proxies(url) === null) return false;
    const addresses = await promisify(this.#lookup)(hostname, { all: true }).catch(() => []);
    return addresses.some(({ address }) => isPrivateAddress(address));
  }

  async *#pieces({ body }: Answer): AsyncGenerator<Buffer> {
    try {
      yield* body;
    } catch (error) {
      throw this.#broken(error);
    }
  }

  #error({ status, headers }: AboutAnswer, bytes: Buffer, asked = ""): ProviderError {
    const isHtml = /^\s*</.test(bytes.subarray(0, 64).toString("latin1"));
    const answer = { status, headers, body: readJson(bytes), isHtml, asked };
    return answerError(this.name, answer, this.#deps.clock.nowMs());
  }

  #broken(error: unknown): unknown {
    return error instanceof ConnectionError ? broken(this.name, error) : error;
  }

  /**
   * Sends one request over these connections. `onSent` is called when there is a connection and the first byte is about to
   * leave. `silenceMs`: how long nothing may come. Rejects with the signal's reason, with the error of `onSent` or of a
   * reference that could not be read, or with `ProviderError`: `unreachable` before, `ambiguous` after the first byte.
   */
  async send(
    over: Connections,
    url: URL,
    { method = "GET", headers, body }: Partial<Pick<UpstreamRequest, "method" | "headers" | "body">>,
    signal: AbortSignal,
    onConnected: () => void = () => {},
    silenceMs?: number,
  ): Promise<Answer> {
    signal.throwIfAborted();
    const sending = {
      method,
      headers: {
        "user-agent": "imgbatch",
        accept: "*/*",
        // Images do not get smaller. A compressed answer is read anyway.
        "accept-encoding": "identity",
        ...headers,
        ...(body && { "content-type": body.contentType }),
      },
      body: body && { bytes: await body.length(), open: () => body.open() },
      signal,
      onConnected,
      isQuiet: true,
      ...(silenceMs === undefined ? {} : { silenceMs }),
    };
    try {
      return await send(url, sending, over);
    } catch (error) {
      throw this.#broken(error);
    }
  }

  /**
   * Gives the body of a success to `read`. Whatever fails but the reading itself leaves open what was made: rejects with the
   * signal's reason or with `ProviderError`.
   */
  async reading<T>(
    { status, body, cancel }: Answer,
    signal: AbortSignal,
    read: (body: AsyncIterable<Buffer>) => Promise<T>,
  ): Promise<T> {
    try {
      return await read(body);
    } catch (error) {
      cancel();
      signal.throwIfAborted();
      if (error instanceof ProviderError) throw error;
      if (error instanceof StorageUnavailable)
        throw ambiguous(this.name, "an image that the disk here did not take", status);
      const code = error instanceof ConnectionError ? error.code : "";
      throw broken(this.name, { code, isSent: true, message: "" });
    }
  }

  async #readError({ body, cancel }: Answer): Promise<Buffer> {
    const done = new AbortController();
    this.#deps.clock.sleep(ERROR_BODY_MS, done.signal).then(cancel, () => {});
    const bytes = await beginningOf(body, MAX_ERROR_BYTES);
    done.abort();
    return bytes;
  }

  /** Ends all connections, and what still runs over them. */
  async close(): Promise<void> {
    await Promise.all([this.#own.close(), this.#foreign.close()]);
  }
}

/** Whether an address is of an origin, in which a `*` stands for a name. */
function isOf(origin: string, url: URL): boolean {
  const [before = "", behind = null] = origin.split("*");
  if (behind === null) return url.origin === before;
  const name = url.origin.slice(before.length, -behind.length);
  return url.origin === before + name + behind && /^[a-z0-9-]+$/.test(name);
}
