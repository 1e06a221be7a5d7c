import type { IncomingMessage } from "node:http";
import type { Request, Response } from "express";

/** How much of a body that nobody wants is read and dropped, and for how long. */
const DISCARD_BYTES = 256 * 1024 * 1024;
const DISCARD_MS = 10_000;

/**
 * For a request that was answered whole: what is left of its body is dropped up to a bound, then the connection ends.
 */
export function boundUnreadBody(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return;
  dropRest(request, () => {
    if (!request.complete) request.socket.destroy();
  });
}

/**
 * Answers a request whose body may not have been read to its end. A client that still sends would lose an answer on a
 * connection that closes; so the answer goes out at once, the rest of the body is dropped (up to a bound of bytes and
 * time), and then the connection closes. A client that waits for permission to send is not waited for.
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
  // A request that was answered is not told when its connection goes.
  request.socket.once("close", finish);
  request.on("error", () => {});
  request.resume();
}
