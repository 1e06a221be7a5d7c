import { IncomingMessage, type ServerOptions, ServerResponse } from "node:http";
import express, { type Response } from "express";
import type { ApiDeps } from "../deps.ts";
import { sendJson } from "./send-json.ts";

/** Options of a server. */
export type ExchangeClasses = Pick<ServerOptions, "IncomingMessage" | "ServerResponse">;

/**
 * Classes of requests and responses that have the methods of Express from the start. Express itself would change the
 * prototype of each object, which discards all that the engine has learned about its properties. The router of Express
 * is not used.
 */
export function exchangeClasses({ trustProxy }: Pick<ApiDeps["server"], "trustProxy">): ExchangeClasses {
  const app = express();
  app.disable("etag");
  app.set("trust proxy", trustProxy);
  app.response.json = sendJson;
  class ServedRequest extends IncomingMessage {
    res: Response | undefined = undefined;
    originalUrl = "";
    params = {};
  }
  class ServedResponse extends ServerResponse {
    readonly locals = {};
  }
  Object.setPrototypeOf(ServedRequest.prototype, app.request);
  Object.setPrototypeOf(ServedResponse.prototype, app.response);
  return { IncomingMessage: ServedRequest, ServerResponse: ServedResponse as typeof ServerResponse };
}
