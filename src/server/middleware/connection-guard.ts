import type { Request, RequestHandler, Response } from "express";
import { boundUnread } from "../answer-unread.ts";

/** An answer that was handed over as a whole is given up when its reader takes nothing of it for this long. */
const UNREAD_ANSWER_MS = 60_000;

/**
 * Keeps one connection from taking more than its share: a body that nobody reads is dropped within bounds, and an
 * answer that nobody reads does not stay in memory.
 * Rule: LOAD-4.
 */
export const guardConnection: RequestHandler = (request, response, next) => {
  response.once("finish", () => boundUnread(request));
  response.once("prefinish", () => dropWhenUnread(request, response));
  next();
};

function dropWhenUnread(request: Request, response: Response): void {
  if (response.writableFinished || response.destroyed) return;
  const timer = setTimeout(() => {
    // Without a socket it waits for an earlier answer on the same connection.
    if (response.socket) request.socket.destroy();
  }, UNREAD_ANSWER_MS);
  response.once("close", () => clearTimeout(timer));
}
