import { type ClientRequest, type IncomingMessage, request as requestHttp } from "node:http";
import type { Socket } from "node:net";
import { pipeline, Readable, type Transform } from "node:stream";

/** How long a connection may take to be made. */
const CONNECT_MS = 10_000;

/** The code of the error for a connection that was not made in time. */
export const CONNECT_TIMEOUT = "CONNECT_TIMEOUT";

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
  /** The body, decompressed, as it comes. Leaving the loop over it ends the connection. */
  body: AsyncIterable<Uint8Array>;
  /** Ends the connection of a body that nobody reads. */
  cancel(): void;
}

export interface Sending {
  /** Default: GET. */
  method?: string;
  headers?: Readonly<Record<string, string>>;
  /** Pieces need a `content-length` among the headers. */
  body?: string | AsyncIterable<Uint8Array> | undefined;
  /** Ends the request, and later its answer. */
  signal: AbortSignal;
}

/**
 * Sends a request and returns its answer as soon as the headers have come. Follows no redirect. Connections are kept for
 * further requests. Rejects with the system's errors. The global `fetch` would take longer to load than the rest of the
 * program.
 */
export async function send(
  url: string,
  { method = "GET", headers = {}, body, signal }: Sending,
): Promise<Answer> {
  signal.throwIfAborted();
  const request = url.startsWith("https:") ? (await import("node:https")).request : requestHttp;
  const sent = request(url, {
    method,
    headers: { "accept-encoding": "gzip, br", ...headers },
    signal,
  });
  sent.once("socket", (socket) => limitConnecting(sent, socket));
  const response = await answerOf(sent, body);
  return {
    status: response.statusCode ?? 0,
    ok: response.statusCode !== undefined && response.statusCode >= 200 && response.statusCode < 300,
    headers: headersOf(response),
    body: await decoded(response),
    cancel: () => response.destroy(),
  };
}

function limitConnecting(request: ClientRequest, socket: Socket): void {
  if (!socket.connecting) return;
  const late = () =>
    request.destroy(Object.assign(new Error("not connected in time"), { code: CONNECT_TIMEOUT }));
  const timer = setTimeout(late, CONNECT_MS);
  const stop = () => clearTimeout(timer);
  socket.once("encrypted" in socket ? "secureConnect" : "connect", stop).once("close", stop);
}

function answerOf(request: ClientRequest, body: Sending["body"]): Promise<IncomingMessage> {
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
    if (typeof body !== "object") request.end(body);
    else {
      const pieces = Readable.from(body, { objectMode: false });
      pieces.once("error", (error) => request.destroy(error));
      request.once("close", () => pieces.destroy());
      pieces.pipe(request);
    }
  });
}

function headersOf({ headers }: IncomingMessage): AnswerHeaders {
  const get = (name: string) => {
    const value = headers[name.toLowerCase()];
    return value === undefined ? null : [value].flat().join(", ");
  };
  return { get, has: (name) => get(name) !== null };
}

/** The body without its content coding (RFC 9110, section 8.4). With an unknown one it stays as it is. */
async function decoded(response: IncomingMessage): Promise<AsyncIterable<Uint8Array>> {
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
