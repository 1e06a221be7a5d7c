import { createServer, type RequestListener, type Server, type ServerOptions } from "node:http";
import type { AddressInfo } from "node:net";
import { ImgbatchError } from "../contract/errors.ts";
import { type Log, silentLog } from "../kernel/log.ts";
import { boundConnections, type ConnectionBounds } from "./connections/bound-connections.ts";
import { rejectMalformed } from "./connections/reject-malformed.ts";

const MAX_TIMER_MS = 2 ** 31 - 1;

export interface Listening {
  /** `http://127.0.0.1:8787`, without a trailing slash. */
  url: string;
  /**
   * Stops accepting and gives running responses `graceMs`. Then `stopWork` ends the work that the others wait for, and
   * connections that are still open are closed.
   */
  close(graceMs: number, stopWork?: () => Promise<void>): Promise<void>;
}

/** Limits of a connection before its request is known. */
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
/** A response that was written at the end of the grace gets this long to reach its reader. */
const LAST_WORDS_MS = 500;

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
    if (!(await isWithin(closed, LAST_WORDS_MS))) server.closeAllConnections();
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
