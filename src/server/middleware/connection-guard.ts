import type { RequestHandler } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { boundUnread } from "../answer-unread.ts";
import { onEnded } from "../exchange.ts";

/**
 * Drops a body that nobody reads within bounds. Refuses HTTP/1.1 without a Host.
 * Rules: API-8, LOAD-4.
 */
export const guardConnection: RequestHandler = (request, response, next) => {
  onEnded(response, (isWhole) => {
    if (isWhole) boundUnread(request);
  });
  if (request.httpVersion === "1.1" && request.get("host") === undefined) {
    throw new ImgbatchError("MALFORMED_REQUEST", "Host: is required.", { param: "Host" });
  }
  next();
};
