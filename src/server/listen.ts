import { createServer, type RequestListener, type Server, type ServerOptions } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { ImgbatchError, type ServiceErrorCode } from "../contract/errors.ts";
import { REQUEST_ID_HEADER } from "../contract/routes.ts";
import { randomIds } from "../kernel/ids.ts";
import { type Log, silentLog } from "../kernel/log.ts";
import { openResponses } from "./http/exchange.ts";
import { errorStyleOf } from "./surfaces.ts";

const MAX_TIMER_MS = 2 ** 31 - 1;

interface Listening {
  /** `http://127.0.0.1:8787`, without a trailing slash. */
  url: string;
  /**
   * Stops accepting and gives running responses `graceMs`. Then `stopWork` ends the work that the others wait for, and
   * connections that are still open are closed.
   */
  close(graceMs: number, stopWork?: () => Promise<void>): Promise<void>;
}

/** Limits of the headers and the body of a request, and of an idle connection. */
const OPTIONS: ServerOptions = {
  // Keys, ids and a query fit many times; more is an attempt to fill memory.
  maxHeaderSize: 16 * 1024,
  // An honest client sends its headers at once, over the slowest line within seconds.
  headersTimeout: 15_000,
  // Code that reads bodies has closer deadlines; this ends bodies that no code reads.
  requestTimeout: 20 * 60_000,
  connectionsCheckingInterval: 2_000,
  // Longer than proxies keep idle connections (60 s), so that the proxy closes them.
  keepAliveTimeout: 65_000,
  // The application checks it, and returns an error body.
  requireHostHeader: false,
};
/** Each takes some 20 KB and a file handle; slow senders must not use up what the database and images need. */
const MAX_CONNECTIONS = 2000;
/**
 * A reader may take this long until the next bytes leave. The system takes bytes for a slow reader in lumps: on the loopback
 * interface 1.4 MiB in one go, for which a reader of 8 KiB/s needs 180 s.
 */
const STALL_MS = 200_000;
/** A response that was written at the end of the grace gets this long to reach its reader. */
const FLUSH_GRACE_MS = 500;

/** Listens; port 0 takes a free one. Throws `ADDRESS_IN_USE` when the port is taken. */
export async function listen(
  app: RequestListener,
  address: { host: string; port: number },
  options: { log?: Log; http?: ServerOptions; bounds?: ConnectionBounds } = {},
): Promise<Listening> {
  const server = createServer({ ...OPTIONS, ...options.http }, app);
  // Node drops the headers behind the first 2000 silently; the bound on their bytes is enough.
  server.maxHeadersCount = 0;
  boundConnections(server, options.bounds ?? {});
  rejectMalformed(server, options.log ?? silentLog);
  // Node would send "100 Continue" before any check; `withJsonBody` sends it once the request may go on.
  server.on("checkContinue", (request, response) => app(request, response));
  // Other expectations are ignored.
  server.on("checkExpectation", (request, response) => app(request, response));
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(toListenError(error, address)));
    server.listen(address.port, address.host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const host = address.host.includes(":") ? `[${address.host}]` : address.host;
  return { url: `http://${host}:${port}`, close: (graceMs, stopWork) => close(server, graceMs, stopWork) };
}

async function close(
  server: Server,
  graceMs: number,
  stopWork: () => Promise<void> = async () => {},
): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  if (!(await isWithin(closed, graceMs))) {
    await stopWork();
    server.closeIdleConnections();
    if (!(await isWithin(closed, FLUSH_GRACE_MS))) server.closeAllConnections();
  }
  await closed;
}

async function isWithin(closed: Promise<void>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, Math.min(ms, MAX_TIMER_MS), false);
  });
  const isClosed = await Promise.race([closed.then(() => true), late]);
  clearTimeout(timer);
  return isClosed;
}

function toListenError(error: NodeJS.ErrnoException, address: { host: string; port: number }): Error {
  const where = `${address.host}:${address.port}`;
  if (error.code === "EADDRINUSE") {
    const message = `${where} is taken by another program; choose another --port, or 0 for a free one.`;
    return new ImgbatchError("ADDRESS_IN_USE", message);
  }
  return new ImgbatchError("USAGE", `${where} cannot be listened on (${error.code}).`, { cause: error });
}

interface ConnectionBounds {
  /** Default: 2000. */
  maxConnections?: number;
  /** A connection ends when its reader takes nothing for this long. Default: 200 s. */
  stallMs?: number;
}

/**
 * Limits connections. For each beyond the limit, the oldest one without a request is closed; a connection with a request is
 * never closed for another. A connection whose reader makes no progress is closed, however short its response; slowness of
 * the service itself does not count.
 */
function boundConnections(server: Server, bounds: ConnectionBounds): void {
  const { maxConnections = MAX_CONNECTIONS, stallMs = STALL_MS } = bounds;
  /** Oldest first. */
  const sockets = new Set<Socket>();
  const isIdle = (socket: Socket) => openResponses(socket).length === 0;
  const makeRoom = (newest?: Socket) => {
    for (const socket of sockets) {
      if (socket === newest || !isIdle(socket)) continue;
      sockets.delete(socket);
      socket.destroy();
      return;
    }
  };
  server.maxConnections = maxConnections;
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    // One place stays free for the next.
    if (sockets.size >= maxConnections) makeRoom(socket);
  });
  server.on("drop", () => makeRoom());
  // Node calls this when nothing has moved on a connection, also when it has been idle for `keepAliveTimeout`.
  server.setTimeout(stallMs, (socket: Socket) => {
    if (isIdle(socket) || socket.writableLength > 0) socket.destroy();
  });
}

/** After the response the sender gets this long to read it. */
const LINGER_MS = 2000;
const MAX_LINE_BYTES = 1024;

/**
 * Responds to bytes that never become a request (not HTTP, headers too large or too slow, `CONNECT`) with an error body
 * and a request id, and closes the connection. The path decides on the style of the body, where it can still be read.
 */
function rejectMalformed(server: Server, log: Log): void {
  server.on("clientError", (fault: ClientFault, socket: Socket) =>
    refuse(new ImgbatchError(codeOf(fault)), socket, { log, path: pathOf(fault) }),
  );
  server.on("connect", (_request, socket: Socket) =>
    refuse(new ImgbatchError("NOT_FOUND"), socket, { log, path: "" }),
  );
}

/** `rawPacket` is what the parser was reading when it gave up. */
type ClientFault = NodeJS.ErrnoException & { rawPacket?: Buffer };

/** Empty when the packet does not begin with the first line of a request. */
function pathOf({ rawPacket }: ClientFault): string {
  const head = rawPacket?.subarray(0, MAX_LINE_BYTES).toString("latin1") ?? "";
  return /^[A-Z]+ (\/[^ ?\r\n]*)[ ?]/.exec(head)?.[1] ?? "";
}

function codeOf({ code = "" }: ClientFault): ServiceErrorCode {
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return "REQUEST_TIMEOUT";
  return code === "HPE_HEADER_OVERFLOW" ? "REQUEST_HEADERS_TOO_LARGE" : "MALFORMED_REQUEST";
}

function refuse(error: ImgbatchError, socket: Socket, options: { log: Log; path: string }): void {
  // The other side went away, or an answer is on its way already: more bytes would be taken for a part of it.
  if (!socket.writable || openResponses(socket).some(({ headersSent }) => headersSent)) {
    socket.destroy();
    return;
  }
  const requestId = randomIds.requestId();
  const body = JSON.stringify(errorStyleOf(options.path).body(error));
  const head = [
    `HTTP/1.1 ${error.httpStatus} ${REASONS[error.httpStatus] ?? "Error"}`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    `${REQUEST_ID_HEADER}: ${requestId}`,
    "Connection: close",
  ];
  const facts = { code: error.code, status: error.httpStatus, request_id: requestId };
  options.log.info("refused bytes that are not an HTTP request", facts);
  socket.on("error", () => {});
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
  // Further bytes are dropped, so that a reset does not destroy the response.
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}

const REASONS: Record<number, string> = {
  400: "Bad Request",
  404: "Not Found",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
};
