import { setMaxListeners } from "node:events";
import {
  Agent,
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request as requestHttp,
} from "node:http";
import type { LookupFunction, Socket } from "node:net";
import { pipeline, Readable, type Transform } from "node:stream";
import type { TLSSocket } from "node:tls";
import { ImgbatchError } from "../contract/errors.ts";
import { linkSignals, unlessAborted, withEnd } from "../kernel/signals.ts";
import { watchTransfer } from "../kernel/transfer-rate.ts";
import { environmentProxies, type HttpProxy, type Proxies } from "./proxies.ts";

/** A request body that is too large for memory. It is made again, piece by piece, each time it is sent. */
export interface StreamedBody {
  /** Exactly the number of bytes that `open` yields, for the `Content-Length`. */
  bytes: number;
  /** Yields the body. An error that it throws ends the request, which then has not arrived whole. */
  open(): AsyncIterable<Uint8Array>;
}

interface Sending {
  /** Default: GET. */
  method?: string;
  headers?: Readonly<Record<string, string>>;
  body?: string | Buffer | StreamedBody | undefined;
  /** Ends the request, and later its answer. */
  signal: AbortSignal;
  /**
   * How long less than 8 KiB/s may move, in either direction, in ms. Time that the reader of the answer takes does not
   * count. Default: no limit.
   */
  silenceMs?: number;
  /** The answer is quiet most of the time: any byte of it counts as progress. */
  isQuiet?: boolean;
  /** Called when there is a connection and the first byte is about to leave. An error that it throws ends the request. */
  onConnected?: () => void;
}

/** The fields of an answer's header, by name in any case. Null when there is none of that name. */
export interface AnswerHeaders {
  get(name: string): string | null;
  has(name: string): boolean;
  /** All fields, with names in lower case. */
  entries(): Iterable<[string, string]>;
}

/** An answer whose headers have come. */
export interface Answer {
  status: number;
  /** Whether the status is 2xx. */
  ok: boolean;
  headers: AnswerHeaders;
  /**
   * The body as it comes, once. Leaving the loop over it ends the connection. Rejects with the signal's reason, with an
   * error of the request's own body, or with `ConnectionError`.
   */
  body: AsyncIterable<Buffer>;
  /** Ends the connection of a body that nobody reads. */
  cancel(): void;
}

/** The connection was not made, broke, or nothing came over it. */
export class ConnectionError extends Error {
  /** The code of the system or of Node, such as `ECONNREFUSED`; else `SILENCE`, `CLOSED`, `PROXY`, `CERTIFICATE` or `unknown`. */
  readonly code: string;
  /** Whether the first byte of the request may have reached the server. */
  readonly isSent: boolean;

  constructor(code: string, isSent: boolean, message: string, cause?: unknown) {
    super(message, { cause });
    this.code = code;
    this.isSent = isSent;
  }
}

/** The code of the error for a connection that was not made in time. */
const CONNECT_TIMEOUT = "CONNECT_TIMEOUT";
const CLOSED = "CLOSED";
/** The code of the error for a proxy that refuses, or that cannot be reached. */
const PROXY = "PROXY";

/** The code of the error for a certificate whose issuer this machine does not know. */
const CERTIFICATE = "CERTIFICATE";
const UNKNOWN_ISSUER = [
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
];

/** The usual reasons in words. */
const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ENOTFOUND: "no such host",
  EAI_AGAIN: "the host name cannot be looked up",
  EHOSTUNREACH: "the host cannot be reached",
  ENETUNREACH: "the network cannot be reached",
  ECONNRESET: "connection reset",
  ETIMEDOUT: "the connection timed out",
  ERR_INVALID_CHAR: "a header holds characters that cannot be sent",
  CERT_HAS_EXPIRED: "its certificate has expired",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is of another host",
  ERR_SSL_WRONG_VERSION_NUMBER: "it does not speak TLS; its address may begin with http://",
  [CONNECT_TIMEOUT]: "the connection timed out",
  [CLOSED]: "the connection was closed",
  [CERTIFICATE]:
    "its certificate is of an authority that this machine does not know; if it is the authority of your network: export NODE_EXTRA_CA_CERTS=/path/to/authority.pem",
};

function wordsOf(code: string | null, thrown: unknown): string {
  return WORDS[code ?? ""] ?? code ?? messageOf(thrown);
}

/** Larger bodies are sent in pieces, so that their progress can be seen. */
const PIECE_BYTES = 64 * 1024;

/**
 * Sends a request once and returns the answer as soon as its headers have come. Follows no redirect. Rejects with the
 * signal's reason, with an error of the body or of `onConnected` as it is, with `USAGE` for a proxy that is none, or with
 * `ConnectionError`. It rejects when its signal aborts or its time is over, whatever the connection does then.
 */
export async function send(
  url: string | URL,
  sending: Sending,
  connections: Connections = ownConnections(),
): Promise<Answer> {
  const { method = "GET", headers = {}, body, silenceMs, isQuiet = false } = sending;
  sending.signal.throwIfAborted();
  const [silence, uncaught] = [new AbortController(), new AbortController()];
  const ends = [sending.signal, silence.signal, uncaught.signal, connections.closed];
  const { signal, unlink } = linkSignals(...ends);
  const watch =
    silenceMs === undefined ? null : watchTransfer({ windowMs: silenceMs }, () => silence.abort());
  const moved = (bytes: number) => watch?.moved(isQuiet && bytes > 0 ? Number.POSITIVE_INFINITY : bytes);
  let isSent = false;
  let hasAnswer = false;
  /** What the body or `onConnected` threw. */
  let own: { reason: unknown } | null = null;
  const leaving = outgoing(body, moved, (reason) => {
    own ??= { reason };
  });
  const end = () => {
    watch?.stop();
    unlink();
    leaving.stop();
  };
  const failure = (thrown: unknown): unknown => {
    end();
    if (sending.signal.aborted) return sending.signal.reason;
    if (own !== null) return own.reason;
    if (thrown instanceof ImgbatchError || thrown instanceof ConnectionError) return thrown;
    if (connections.closed.aborted) return new ConnectionError(CLOSED, isSent, WORDS[CLOSED] ?? CLOSED);
    const code = codeOf(thrown);
    if (!silence.signal.aborted)
      return new ConnectionError(code ?? "unknown", isSent, wordsOf(code, thrown), thrown);
    const inTime = `within ${Math.round((silenceMs ?? 0) / 1000)} s`;
    const what = hasAnswer ? `less than 8 KiB/s came ${inTime}` : `no answer ${inTime}`;
    return new ConnectionError("SILENCE", isSent, what);
  };
  const onConnected = () => {
    try {
      sending.onConnected?.();
    } catch (reason) {
      own = { reason };
      throw reason;
    }
    isSent = true;
  };
  try {
    const request = { url: new URL(url), method, headers: { ...leaving.headers, ...headers }, signal };
    const exchanged = withEnd(
      (error) => uncaught.abort(error),
      () => exchange(connections, { ...request, body: leaving.body, onConnected }),
    );
    exchanged.then((late) => signal.aborted && late.body.destroy()).catch(() => {});
    const answer = await unlessAborted(exchanged, signal);
    hasAnswer = true;
    const read = async function* () {
      const pieces: AsyncIterator<Buffer> = answer.body[Symbol.asyncIterator]();
      let isWhole = false;
      try {
        for (;;) {
          const { value, done } = await unlessAborted(pieces.next(), signal);
          if (done) break;
          moved(value.length);
          watch?.pause();
          yield value;
          watch?.resume();
        }
        isWhole = true;
      } catch (thrown) {
        throw failure(thrown);
      } finally {
        end();
        if (!isWhole) answer.body.destroy();
      }
    };
    const cancel = () => {
      end();
      answer.body.destroy();
    };
    const { status } = answer;
    return { status, ok: isSuccess(status), headers: headersOf(answer.headers), body: read(), cancel };
  } catch (thrown) {
    throw failure(thrown);
  }
}

const isSuccess = (status: number) => status >= 200 && status < 300;

type LeavingBody = Buffer | AsyncIterable<Uint8Array> | null;

/** A body on its way. `stop` ends it and closes what it reads from. */
function outgoing(
  body: Sending["body"],
  moved: (bytes: number) => void,
  onError: (reason: unknown) => void,
): { body: LeavingBody; headers: Record<string, string>; stop(): void } {
  if (body === undefined) return { body: null, headers: {}, stop: () => {} };
  const whole = typeof body === "string" ? Buffer.from(body) : body;
  const length = Buffer.isBuffer(whole) ? whole.length : whole.bytes;
  const headers = { "content-length": String(length) };
  if (Buffer.isBuffer(whole) && length <= PIECE_BYTES) {
    moved(length);
    return { body: whole, headers, stop: () => {} };
  }
  const source: AsyncIterator<Uint8Array> = (Buffer.isBuffer(whole) ? piecesOf(whole) : whole.open())[
    Symbol.asyncIterator
  ]();
  let isStopped = false;
  const pieces = async function* () {
    try {
      for (;;) {
        const { value, done } = await source.next();
        if (done || isStopped) return;
        moved(value.length);
        yield value;
      }
    } catch (reason) {
      onError(reason);
      throw reason;
    }
  };
  const stop = () => {
    isStopped = true;
    // The request is over: an error of closing changes nothing.
    Promise.resolve(source.return?.()).catch(() => {});
  };
  return { body: pieces(), headers, stop };
}

async function* piecesOf(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
}

/** Wraps the headers that Node has parsed. The global class `Headers` takes tens of milliseconds to load. */
export function headersOf(headers: IncomingHttpHeaders): AnswerHeaders {
  const get = (name: string) => {
    const value = headers[name.toLowerCase()];
    return value === undefined ? null : [value].flat().join(", ");
  };
  const entries = () => Object.keys(headers).map((name): [string, string] => [name, get(name) ?? ""]);
  return { get, has: (name) => get(name) !== null, entries };
}

/** Returns a body of at most `maxBytes`; null when it is longer, and the rest is not read. */
export async function boundedBytes(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
  chunks: Uint8Array[] = [],
): Promise<Buffer | null> {
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    // Leaving the loop ends the connection.
    if (bytes > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, bytes);
}

/** Returns a body of at most `maxBytes` as text; null when it is longer. */
export async function boundedText(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string | null> {
  const bytes = await boundedBytes(body, maxBytes);
  return bytes === null ? null : new TextDecoder().decode(bytes);
}

/** Returns the beginning of a body: all that came until it ended, broke, or had more than `maxBytes`. */
export async function beginningOf(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  await boundedBytes(body, maxBytes, chunks).catch(() => {});
  return Buffer.concat(chunks);
}

/** Returns the code of an error; null when it has none. Node may nest it: an error may have a cause, or bundle one error per address. */
function codeOf(thrown: unknown, depth = 0): string | null {
  if (!(thrown instanceof Error) || depth > 4) return null;
  const { code, errors } = thrown as { code?: unknown; errors?: unknown };
  // Node reports an end of the connection as a reset, too, but one without a system call.
  if (code === "ERR_STREAM_PREMATURE_CLOSE" || (code === "ECONNRESET" && !("syscall" in thrown)))
    return CLOSED;
  if (typeof code === "string") return UNKNOWN_ISSUER.includes(code) ? CERTIFICATE : code;
  return codeOf(Array.isArray(errors) ? errors[0] : thrown.cause, depth + 1);
}

function messageOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause instanceof Error ? thrown.cause.message : thrown.message;
}

/** How long a connection may take to be made, through a proxy too. */
const CONNECT_MS = 10_000;
/** Servers close idle connections, most of them after 5 s: a request that is on its way then would be lost. */
const IDLE_MS = 4_000;

interface ConnectionChoices {
  /** The most connections to one origin; further requests wait. Not through a proxy. Default: no limit. */
  most?: number;
  /** Looks names up. Default: the system's. */
  lookup?: LookupFunction;
  /** Default: none. */
  proxies?: Proxies;
}

/** Connections that are made when they are needed, and kept for further requests of their owner. */
export class Connections {
  readonly #closing = new AbortController();
  readonly #choices: ConnectionChoices;
  /** By protocol, and by the address of the proxy. */
  readonly #agents = new Map<string, Promise<Agent>>();

  constructor(choices: ConnectionChoices = {}) {
    this.#choices = choices;
    // Any number of requests may listen at once.
    setMaxListeners(0, this.closed);
  }

  /** Aborted by `close`. */
  get closed(): AbortSignal {
    return this.#closing.signal;
  }

  /** Returns what connects to an address, and the proxy through which it does so. Throws `USAGE` for a proxy that is none. */
  async to(url: URL): Promise<{ agent: Agent; proxy: HttpProxy | null }> {
    const proxy = this.#choices.proxies?.(url) ?? null;
    const key = `${url.protocol} ${proxy?.url.href ?? ""}`;
    const known = this.#agents.get(key) ?? this.#agent(url.protocol === "https:", proxy);
    this.#agents.set(key, known);
    return { agent: await known, proxy };
  }

  async #agent(isEncrypted: boolean, proxy: HttpProxy | null): Promise<Agent> {
    const { most = Number.POSITIVE_INFINITY, lookup } = this.#choices;
    const kept = { keepAlive: true, timeout: IDLE_MS, scheduling: "lifo" } as const;
    // It asks for a tunnel, also to an address of http: then no proxy can keep or change what passes, and its refusal is known.
    if (proxy !== null) return new (await import("https-proxy-agent")).HttpsProxyAgent(proxy.url, kept);
    const direct = { ...kept, maxSockets: most, ...(lookup === undefined ? {} : { lookup }) };
    return isEncrypted ? new (await import("node:https")).Agent(direct) : new Agent(direct);
  }

  /** Ends all connections, and the requests that are under way. */
  async close(): Promise<void> {
    this.#closing.abort();
    for (const agent of this.#agents.values()) (await agent).destroy();
  }
}

let shared: Connections | undefined;

/** The connections of this process for everything that has none of its own. */
function ownConnections(): Connections {
  shared ??= new Connections({ proxies: environmentProxies });
  return shared;
}

interface ExchangeRequest {
  url: URL;
  method: string;
  headers: Record<string, string>;
  body: LeavingBody;
  signal: AbortSignal;
  /** Called when there is a connection, before the first byte leaves. An error that it throws ends the request. */
  onConnected(): void;
}

interface Exchanged {
  status: number;
  headers: IncomingHttpHeaders;
  body: Readable;
}

/** Sends a request with Node's own client. Resolves when the headers of the answer have come. */
async function exchange(connections: Connections, exchanging: ExchangeRequest): Promise<Exchanged> {
  const { url, method, headers, body, signal, onConnected } = exchanging;
  const { agent, proxy } = await connections.to(url);
  const request = url.protocol === "https:" ? (await import("node:https")).request : requestHttp;
  signal.throwIfAborted();
  const coded = { "accept-encoding": "gzip, br", ...headers };
  const sent = request(url, { method, headers: coded, agent, signal });
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    // Node reports the end of a request that has no connection yet only when it gets one.
    const fail = (error: unknown) => {
      reject(error);
      sent.destroy(error as Error);
    };
    const start = () => {
      try {
        onConnected();
        sendBody(sent, body);
      } catch (error) {
        fail(error);
      }
    };
    // A service may answer before it has read the whole body, and then close the connection: the answer counts.
    const watched = proxy === null ? reject : watchProxy(sent, proxy, { reject, fail });
    sent.on("error", watched);
    sent.once("response", resolve);
    // An answer such as 101, or an end without an error, brings no response. After one, this changes nothing.
    sent.once("close", () =>
      reject(Object.assign(new Error("closed without an answer"), { code: "ECONNRESET" })),
    );
    whenConnected(sent, proxy, start, fail);
  });
  // The rest of the body would be read as the next request.
  response.once("close", () => {
    if (!sent.writableFinished) sent.destroy();
  });
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: await decoded(response),
  };
}

function sendBody(sent: ClientRequest, body: LeavingBody): void {
  if (body === null || Buffer.isBuffer(body)) {
    sent.end(body ?? undefined);
    return;
  }
  const pieces = Readable.from(body, { objectMode: false });
  pieces.once("error", (error) => sent.destroy(error));
  sent.once("close", () => pieces.destroy());
  pieces.pipe(sent);
}

/** Calls `start` when the request has a connection, and `fail` when it gets none in time. Nothing is written before `start`. */
function whenConnected(
  sent: ClientRequest,
  proxy: HttpProxy | null,
  start: () => void,
  fail: (error: unknown) => void,
): void {
  let timer: NodeJS.Timeout | undefined;
  const stop = () => clearTimeout(timer);
  const limit = () => {
    timer ??= setTimeout(() => {
      const late = Object.assign(new Error("not connected in time"), { code: CONNECT_TIMEOUT });
      fail(proxy === null ? late : unreachable(proxy, late));
    }, CONNECT_MS);
  };
  const connected = () => {
    stop();
    start();
  };
  sent.once("close", stop);
  // A proxy is asked before the request gets its connection.
  if (proxy !== null) limit();
  sent.once("socket", (socket: Socket | TLSSocket) => {
    const isEncrypted = "secureConnecting" in socket;
    if (!(isEncrypted ? socket.secureConnecting : socket.connecting)) return connected();
    limit();
    socket.once(isEncrypted ? "secureConnect" : "connect", connected).once("close", stop);
  });
}

/** Fails a request that its proxy refuses. Returns the listener for errors, which names the proxy that was not reached. */
function watchProxy(
  sent: ClientRequest,
  proxy: HttpProxy,
  { reject, fail }: Record<"reject" | "fail", (error: unknown) => void>,
): (error: Error) => void {
  let isReached = false;
  // The agent reports this when the proxy has answered.
  sent.once("proxyConnect", ({ statusCode }: { statusCode: number }) => {
    isReached = true;
    if (statusCode === 200) return;
    const message = `the proxy ${proxy.shown} refuses the connection (HTTP ${statusCode})`;
    fail(new ConnectionError(PROXY, false, message));
  });
  // A connection that was made for an earlier request is used again.
  sent.once("socket", () => {
    isReached = true;
  });
  return (error) => reject(isReached ? error : unreachable(proxy, error));
}

function unreachable({ shown }: HttpProxy, cause: Error): ConnectionError {
  const words = wordsOf(codeOf(cause), cause);
  return new ConnectionError(PROXY, false, `the proxy ${shown} cannot be reached: ${words}`, cause);
}

/** The body without its content coding (RFC 9110, section 8.4). With an unknown one it stays as it is. */
async function decoded(response: IncomingMessage): Promise<Readable> {
  const coding = response.headers["content-encoding"]?.trim().toLowerCase() ?? "identity";
  if (coding === "identity") return response;
  const zlib = await import("node:zlib");
  // A missing end is no error, as in browsers.
  const finishFlush = zlib.constants.Z_SYNC_FLUSH;
  const decoders: Record<string, () => Transform> = {
    gzip: () => zlib.createGunzip({ finishFlush }),
    "x-gzip": () => zlib.createGunzip({ finishFlush }),
    deflate: () => zlib.createInflate({ finishFlush }),
    br: () => zlib.createBrotliDecompress({ finishFlush: zlib.constants.BROTLI_OPERATION_FLUSH }),
  };
  const decoder = Object.hasOwn(decoders, coding) ? decoders[coding]?.() : undefined;
  // The reader of the body gets every error.
  return decoder === undefined ? response : pipeline(response, decoder, () => {});
}
