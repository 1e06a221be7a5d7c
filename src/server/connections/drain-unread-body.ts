import type { IncomingMessage } from "node:http";
import type { Request, Response } from "express";

/** The most bytes of an unread body that are read and dropped, and the most time for it. */
const DISCARD_BYTES = 256 * 1024 * 1024;
const DISCARD_MS = 10_000;

/**
 * Drops the rest of a request's body after the response was sent, up to a limit; then the connection is closed.
 */
export function boundUnreadBody(request: IncomingMessage): void {
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
