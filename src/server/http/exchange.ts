import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Request, RequestHandler, Response } from "express";

/** Called at the end of an exchange. `isWhole`: the whole response was sent. */
type EndListener = (isWhole: boolean) => void;

/** One connection, as the requests see it that came over it. */
class Connection {
  readonly #socket: Socket;
  /** Responses whose exchange has not ended. With pipelining there are several. */
  readonly #open = new Map<Response, EndListener[]>();
  #hadKey = false;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.once("close", () => {
      for (const response of [...this.#open.keys()]) this.#end(response, false);
    });
  }

  /** No request is under way. */
  get isIdle(): boolean {
    return this.#open.size === 0;
  }

  /** A request came with a valid key. */
  get hasKey(): boolean {
    return this.#hadKey || [...this.#open.keys()].some(showsKey);
  }

  onEnded(response: Response, listener: EndListener): void {
    const listeners = this.#open.get(response);
    if (listeners) {
      listeners.push(listener);
      return;
    }
    this.#open.set(response, [listener]);
    let isWhole = false;
    // Node also finishes a response whose connection was cut in the middle.
    response.once("finish", () => {
      isWhole = !this.#socket.destroyed;
    });
    response.once("close", () => this.#end(response, isWhole));
  }

  #end(response: Response, isWhole: boolean): void {
    const listeners = this.#open.get(response) ?? [];
    this.#open.delete(response);
    this.#hadKey ||= showsKey(response);
    for (const listener of listeners) listener(isWhole);
  }
}

const showsKey = (response: Response) => response.locals.key !== undefined;

const connections = new WeakMap<Socket, Connection>();

export function connectionOf(socket: Socket): Connection {
  const known = connections.get(socket);
  if (known) return known;
  const connection = new Connection(socket);
  connections.set(socket, connection);
  return connection;
}

/**
 * Calls the listener once when an exchange has ended: its response was sent, or its connection is closed; at once when it
 * is closed already. Node reports the end of a connection only to the response that is being sent, not to those that wait
 * behind it (pipelining, RFC 9112, section 9.3.2).
 */
export function onEnded(response: Response, listener: EndListener): void {
  const { socket } = response.req;
  if (response.closed || socket.closed) listener(false);
  else connectionOf(socket).onEnded(response, listener);
}

/** A signal that aborts when the caller goes away before it has the whole response. */
export function goneSignal(response: Response, reason?: Error): AbortSignal {
  const gone = new AbortController();
  onEnded(response, (isWhole) => {
    if (!isWhole) gone.abort(reason);
  });
  return gone.signal;
}

/** Limits how much of a body is still read after its response was sent, and ends the connections of a service that stops. */
export function finishExchange({ isStopping }: { isStopping(): boolean }): RequestHandler {
  return (request, response, next) => {
    if (isStopping()) response.shouldKeepAlive = false;
    onEnded(response, (isWhole) => {
      if (isWhole) boundUnreadBody(request);
    });
    next();
  };
}

/** The most bytes of an unread body that are read and dropped, and the most time for it. */
const DISCARD_BYTES = 256 * 1024 * 1024;
const DISCARD_MS = 10_000;

/**
 * Drops the rest of a request's body after the response was sent, up to a limit; then the connection is closed.
 */
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
  const bytes = Buffer.from(JSON.stringify(body));
  response.setHeader("Content-Type", "application/json; charset=utf-8");
  response.setHeader("Content-Length", bytes.length);
  if (!isSendingBody(request)) {
    response.end(request.method === "HEAD" ? undefined : bytes);
    return;
  }
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
