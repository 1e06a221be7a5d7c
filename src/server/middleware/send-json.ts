import type { Response } from "express";

/**
 * Answers with a value as JSON, in place of `response.json` of Express: that one also looks for an entity tag, a charset
 * and a body that the status forbids, which no JSON of this service has.
 */
export function sendJson(this: Response, value: unknown): Response {
  const text = JSON.stringify(value);
  this.setHeader("Content-Type", "application/json; charset=utf-8");
  this.setHeader("Content-Length", Buffer.byteLength(text));
  // Node leaves out the body of a response to HEAD.
  return this.end(text);
}
