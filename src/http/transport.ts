import {
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request as requestHttp,
} from "node:http";
import type { Socket } from "node:net";
import { pipeline, Readable, type Transform } from "node:stream";
import { linkSignals } from "../kernel/signals.ts";
import { watchTransfer } from "../kernel/transfer-rate.ts";

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

/** One attempt as an engine makes it: it knows connections, not time limits. */
interface EngineRequest {
  url: URL;
  method: string;
  headers: Record<string, string>;
  body: Buffer | AsyncIterable<Uint8Array> | null;
  signal: AbortSignal;
  /** Must be called when there is a connection, before the first byte leaves. An error that it throws ends the request. */
  onConnected(): void;
}

/** Sends a request over its connections and resolves when the headers of the answer have come. Follows no redirect. */
export type Engine = (request: EngineRequest) => Promise<{
  status: number;
  headers: IncomingHttpHeaders;
  body: AsyncIterable<Buffer>;
  destroy(): void;
}>;

/** The connection was not made, broke, or nothing came over it. */
export class ConnectionError extends Error {
  /** The code of the system, such as `ECONNREFUSED`, or of the engine; else `SILENCE`, `CLOSED` or `unknown`. */
  readonly code: string;
  /** Whether the first byte of the request may have left. */
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

/** The usual reasons in words. */
const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ENOTFOUND: "no such host",
  EAI_AGAIN: "the host name cannot be looked up",
  EHOSTUNREACH: "the host cannot be reached",
  ENETUNREACH: "the network cannot be reached",
  ECONNRESET: "connection reset",
  ETIMEDOUT: "the connection timed out",
  [CONNECT_TIMEOUT]: "the connection timed out",
  [CLOSED]: "the connection was closed",
};

/** Larger bodies are sent in pieces, so that their progress can be seen. */
const PIECE_BYTES = 64 * 1024;

/**
 * Sends a request once and returns the answer as soon as its headers have come. Follows no redirect. Rejects with the
 * signal's reason, with an error of the body or of `onConnected` as it is, or with `ConnectionError`.
 */
export async function send(url: string | URL, sending: Sending, engine: Engine = viaNode): Promise<Answer> {
  const { method = "GET", headers = {}, body, silenceMs, isQuiet = false } = sending;
  sending.signal.throwIfAborted();
  const silence = new AbortController();
  const { signal, unlink } = linkSignals(sending.signal, silence.signal);
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
    const code = codeOf(thrown);
    if (!silence.signal.aborted)
      return new ConnectionError(
        code ?? "unknown",
        isSent,
        WORDS[code ?? ""] ?? code ?? messageOf(thrown),
        thrown,
      );
    const inTime = `within ${Math.round((silenceMs ?? 0) / 1000)} s`;
    const what = hasAnswer ? `less than 8 KiB/s came ${inTime}` : `no answer ${inTime}`;
    return new ConnectionError("SILENCE", isSent, what);
  };
  const onConnected = () => {
    if (isSent) return;
    try {
      sending.onConnected?.();
    } catch (reason) {
      own = { reason };
      throw reason;
    }
    isSent = true;
  };
  try {
    const answer = await engine({
      url: new URL(url),
      method,
      headers: { ...leaving.headers, ...headers },
      body: leaving.body,
      signal,
      onConnected,
    });
    hasAnswer = true;
    const read = async function* () {
      try {
        for await (const piece of answer.body) {
          moved(piece.length);
          watch?.pause();
          yield piece;
          watch?.resume();
        }
      } catch (thrown) {
        throw failure(thrown);
      } finally {
        end();
      }
    };
    const cancel = () => {
      end();
      answer.destroy();
    };
    const { status } = answer;
    return { status, ok: isSuccess(status), headers: headersOf(answer.headers), body: read(), cancel };
  } catch (thrown) {
    throw failure(thrown);
  }
}

const isSuccess = (status: number) => status >= 200 && status < 300;

/** A body on its way. `stop` ends it and closes what it reads from. */
function outgoing(
  body: Sending["body"],
  moved: (bytes: number) => void,
  onError: (reason: unknown) => void,
): { body: EngineRequest["body"]; headers: Record<string, string>; stop(): void } {
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
  return { get, has: (name) => get(name) !== null };
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
  if (typeof code === "string") return code;
  return codeOf(Array.isArray(errors) ? errors[0] : thrown.cause, depth + 1);
}

function messageOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause instanceof Error ? thrown.cause.message : thrown.message;
}

/** How long a connection may take to be made. */
const CONNECT_MS = 10_000;

/**
 * Sends over Node's own connections, which are kept for further requests. The global `fetch` and its library would take
 * longer to load than the rest of a short command.
 */
const viaNode: Engine = async ({ url, method, headers, body, signal, onConnected }) => {
  const request = url.protocol === "https:" ? (await import("node:https")).request : requestHttp;
  const sent = request(url, { method, headers: { "accept-encoding": "gzip, br", ...headers }, signal });
  sent.once("socket", (socket) => whenConnected(sent, socket, onConnected));
  const response = await answerOf(sent, body);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: await decoded(response),
    destroy: () => response.destroy(),
  };
};

function whenConnected(request: ClientRequest, socket: Socket, onConnected: () => void): void {
  const connected = () => {
    try {
      onConnected();
    } catch (error) {
      request.destroy(error as Error);
    }
  };
  if (!socket.connecting) {
    connected();
    return;
  }
  const late = () =>
    request.destroy(Object.assign(new Error("not connected in time"), { code: CONNECT_TIMEOUT }));
  const timer = setTimeout(late, CONNECT_MS);
  const stop = () => clearTimeout(timer);
  const isEncrypted = "encrypted" in socket;
  socket
    .once(isEncrypted ? "secureConnect" : "connect", connected)
    .once(isEncrypted ? "secureConnect" : "connect", stop)
    .once("close", stop);
}

function answerOf(request: ClientRequest, body: EngineRequest["body"]): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    // A service may answer before it has read the whole body, and then close the connection: the answer counts.
    request.on("error", reject);
    request.once("response", (response) => {
      // The rest of the body would be read as the next request.
      response.once("close", () => {
        if (!request.writableFinished) request.destroy();
      });
      resolve(response);
    });
    // An answer such as 101, or an end without an error, brings no response. After one, this changes nothing.
    request.once("close", () =>
      reject(Object.assign(new Error("closed without an answer"), { code: "ECONNRESET" })),
    );
    if (body === null || Buffer.isBuffer(body)) request.end(body ?? undefined);
    else {
      const pieces = Readable.from(body, { objectMode: false });
      pieces.once("error", (error) => request.destroy(error));
      request.once("close", () => pieces.destroy());
      pieces.pipe(request);
    }
  });
}

/** The body without its content coding (RFC 9110, section 8.4). With an unknown one it stays as it is. */
async function decoded(response: IncomingMessage): Promise<AsyncIterable<Buffer>> {
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
