import type { RequestHandler } from "express";
import { boundUnreadBody } from "./drain-unread-body.ts";
import { onEnded } from "./exchange.ts";

/** Drops a body that nobody reads within bounds. */
export const guardConnection: RequestHandler = (request, response, next) => {
  onEnded(response, (isWhole) => {
    if (isWhole) boundUnreadBody(request);
  });
  next();
};
