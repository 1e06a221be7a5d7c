import type { RequestHandler } from "express";
import type { ApiDeps } from "../deps.ts";
import { boundUnreadBody } from "./drain-unread-body.ts";
import { onEnded } from "./exchange.ts";

/** Limits how much of a body is still read after its response was sent, and ends the connections of a service that stops. */
export function finishExchange({ isStopping }: Pick<ApiDeps, "isStopping">): RequestHandler {
  return (request, response, next) => {
    if (isStopping()) response.shouldKeepAlive = false;
    onEnded(response, (isWhole) => {
      if (isWhole) boundUnreadBody(request);
    });
    next();
  };
}
