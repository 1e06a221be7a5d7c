import type { RequestHandler } from "express";
import { boundUnreadBody } from "./drain-unread-body.ts";
import { onEnded } from "./exchange.ts";

/** Limits how much of a body is still read after its response was sent. */
export const guardConnection: RequestHandler = (request, response, next) => {
  onEnded(response, (isWhole) => {
    if (isWhole) boundUnreadBody(request);
  });
  next();
};
