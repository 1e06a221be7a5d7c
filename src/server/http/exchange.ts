import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Request, RequestHandler, Response } from "express";
import { PATHS, REQUEST_ID_HEADER } from "../../contract/routes.ts";
import { hideApiKeys, holdsApiKey } from "../../kernel/hide-keys.ts";
import { tracer } from "../../kernel/tracing.ts";
import type { ApiDeps } from "../deps.ts";
import type { Metrics } from "../monitoring/metrics.ts";

type ExchangeDeps = Pick<ApiDeps, "ids" | "requestLog" | "feed" | "clock" | "isStopping">;

/** What monitors ask for all the time. */
const UNTRACED = new Set<string>([PATHS.health, PATHS.ready, PATHS.metrics]);
const WELL_FORMED = /^[A-Za-z0-9._-]{1,128}$/;

/**
 * Follows an exchange from its request to the end of its response. The response gets a request id: the caller's when it is
 * well formed and not an API key, else a new one. At the end there is a line in the log and in the feed, and a count in the
 * metrics. The query is not logged: it can hold a key. Health checks come all the time, so they are logged at `debug` only.
 * A service that stops ends its connections.
 */
export function beginExchange(deps: ExchangeDeps, metrics: Pick<Metrics, "observe">): RequestHandler {
  const { ids, requestLog, feed, clock, isStopping } = deps;
  return (request, response, next) => {
    const startedAt = performance.now();
    const given = request.get(REQUEST_ID_HEADER);
    const isUsable = given !== undefined && WELL_FORMED.test(given) && !holdsApiKey(given);
    const requestId = isUsable ? given : ids.requestId();
    response.locals.requestId = requestId;
    response.setHeader(REQUEST_ID_HEADER, requestId);
    if (isStopping()) response.shouldKeepAlive = false;
    const { method } = request;
    const path = shownPath(request.path);
    onEnded(response, (isWhole) => {
      const status = response.statusCode;
      const ms = performance.now() - startedAt;
      const durationMs = Math.round(ms);
      const { route, key, scope } = response.locals;
      metrics.observe({ method, route, status: isWhole ? String(status) : "aborted", ms });
      const isProbe = path === PATHS.health;
      const line = { atMs: clock.nowMs(), method, path, status, durationMs, key: key?.prefix ?? null };
      if (!isProbe && scope?.keys !== "all") feed.publish({ type: "request", line });
      const facts = { method, path, status, ms: durationMs, request_id: requestId };
      requestLog[isProbe ? "debug" : "info"]("request", isWhole ? facts : { ...facts, aborted: true });
      if (isWhole) boundUnreadBody(request);
    });
    if (UNTRACED.has(path)) return next();
    const exchange = async () => {
      const ended = new Promise<boolean>((resolve) => onEnded(response, resolve));
      next();
      const isWhole = await ended;
      const { route = "unknown" } = response.locals;
      const status = isWhole
        ? { "http.response.status_code": response.statusCode }
        : { "error.type": "aborted" };
      tracer.note({ "http.route": route, ...status });
    };
    const facts = { "http.request.method": method, "imgbatch.request.id": requestId };
    void tracer.span("request", facts, exchange, { kind: "server", parent: request.headers });
  };
}

/**
 * Hides values behind a `=`: a query whose question mark is encoded or missing is a part of the path. Hides the names of
 * images that can be fetched without a key, too.
 */
export function shownPath(path: string): string {
  return hideApiKeys(path.replace(/(=|%3d)[^/]+/gi, "$1…").replace(/^(\/v1\/images\/outputs\/).+/, "$1…"));
}

/** Called at the end of an exchange. `isWhole`: the whole response was sent. */
type EndListener = (isWhole: boolean) => void;

/** The listeners of each response whose exchange has not ended. With pipelining, a connection has several. */
const connections = new WeakMap<Socket, Map<Response, EndListener[]>>();

/** The responses of a connection that have not ended. */
export function openResponses(socket: Socket): Response[] {
  return [...(connections.get(socket)?.keys() ?? [])];
}

/**
 * Calls the listener once when an exchange has ended: its response was sent, or its connection is closed; at once when it
 * is closed already. Node reports the end of a connection only to the response that is being sent, not to those that wait
 * behind it (pipelining, RFC 9112, section 9.3.2).
 */
export function onEnded(response: Response, listener: EndListener): void {
  const { socket } = response.req;
  if (response.closed || socket.closed) {
    listener(false);
    return;
  }
  const open = connections.get(socket) ?? follow(socket);
  const listeners = open.get(response);
  if (listeners) {
    listeners.push(listener);
    return;
  }
  open.set(response, [listener]);
  let isWhole = false;
  // Node also finishes a response whose connection was cut in the middle.
  response.once("finish", () => {
    isWhole = !socket.destroyed;
  });
  response.once("close", () => end(open, response, isWhole));
}

function follow(socket: Socket): Map<Response, EndListener[]> {
  const open = new Map<Response, EndListener[]>();
  connections.set(socket, open);
  socket.once("close", () => {
    for (const response of [...open.keys()]) end(open, response, false);
  });
  return open;
}

function end(open: Map<Response, EndListener[]>, response: Response, isWhole: boolean): void {
  const listeners = open.get(response) ?? [];
  open.delete(response);
  for (const listener of listeners) listener(isWhole);
}

/** A signal that aborts when the caller goes away before it has the whole response. */
export function goneSignal(response: Response, reason?: Error): AbortSignal {
  const gone = new AbortController();
  onEnded(response, (isWhole) => {
    if (!isWhole) gone.abort(reason);
  });
  return gone.signal;
}

/** The most bytes of an unread body that are read and dropped, and the most time for it. */
const DISCARD_BYTES = 256 * 1024 * 1024;
const DISCARD_MS = 10_000;

/** Drops the rest of a request's body after the response was sent, up to a limit; then the connection is closed. */
function boundUnreadBody(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return;
  dropRest(request, () => {
    if (!request.complete) request.socket.destroy();
  });
}

/**
 * Sends a JSON response to a request whose body may not have been read to its end. A client that still sends would lose
 * the response on a closed connection. So the response is sent at once, the rest of the body is dropped (up to a limit of
 * bytes and time), and then the connection is closed. A client that waits for 100 Continue sends no body.
 */
export function drainUnreadBody(request: Request, response: Response, body: object): void {
  if (!isSendingBody(request)) {
    response.json(body);
    return;
  }
  const bytes = Buffer.from(JSON.stringify(body));
  response.setHeader("Content-Type", "application/json; charset=utf-8");
  response.setHeader("Content-Length", bytes.length);
  response.setHeader("Connection", "close");
  response.write(bytes);
  dropRest(request, () => response.end());
}

function isSendingBody(request: Request): boolean {
  if (request.complete || request.destroyed || request.method === "HEAD") return false;
  const hasBody =
    Number(request.get("content-length") ?? 0) > 0 || request.get("transfer-encoding") !== undefined;
  const waits = request.get("expect") !== undefined && request.res?.locals.mayContinue !== true;
  return hasBody && !waits;
}

function dropRest(request: IncomingMessage, done: () => void): void {
  let dropped = 0;
  const finish = () => {
    clearTimeout(timer);
    request.off("data", onData);
    request.off("end", finish);
    request.socket.off("close", finish);
    done();
  };
  const onData = (chunk: Buffer) => {
    dropped += chunk.length;
    if (dropped > DISCARD_BYTES) finish();
  };
  const timer = setTimeout(finish, DISCARD_MS);
  request.on("data", onData);
  request.once("end", finish);
  // After the response, Node does not report the end of the connection to the request.
  request.socket.once("close", finish);
  request.on("error", () => {});
  request.resume();
}
