import { subscribe } from "node:diagnostics_channel";
import type { ClientRequest, IncomingMessage } from "node:http";
import { expect } from "vitest";
import { PATHS } from "../../src/contract/routes.ts";
import { watchText } from "./secrets.ts";

/*
 * What each process of the tests has once: test files that share a process share this module too.
 */

// Compares bytes at once. Vitest would compare them one by one, a tenth of a second for a hundred kilobytes.
expect.addEqualityTesters([
  (a, b) =>
    a instanceof Uint8Array && b instanceof Uint8Array && a.constructor === b.constructor
      ? Buffer.compare(a, b) === 0
      : undefined,
]);

// Searches every response that a test or the client reads: its headers at once, its body when a test reads it.
/** Larger answers are images and ZIPs, whose sources are searched as files. */
const MAX_WATCHED_BYTES = 1024 * 1024;

const realFetch = globalThis.fetch;
globalThis.fetch = async (...request) => {
  const answer = await realFetch(...request);
  const headers = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  watchText(headers, `headers of an answer ${answer.status}`);
  return answer;
};
// The client sends its requests with Node's own HTTP. So do upstreams' adapters, whose stand-ins may echo their key.
subscribe("http.client.response.finish", (message) => {
  const { request, response } = message as { request: ClientRequest; response: IncomingMessage };
  if (!JSON.stringify(request.getHeaders()).includes("imgb_")) return;
  watchText(response.rawHeaders.join("\n"), `headers of an answer ${response.statusCode}`);
});
/** The one answer that has a secret in it: the token of a new session. */
const isSignIn = ({ url, ok }: Response) => ok && url.endsWith(PATHS.consoleSessions);

const { text, arrayBuffer } = Response.prototype;
Response.prototype.text = async function (this: Response) {
  const body = await text.call(this);
  if (isSignIn(this)) return body;
  if (body.length <= MAX_WATCHED_BYTES) watchText(body, `an answer ${this.status}`);
  return body;
};
Response.prototype.arrayBuffer = async function (this: Response) {
  const body = await arrayBuffer.call(this);
  if (isSignIn(this)) return body;
  if (body.byteLength <= MAX_WATCHED_BYTES) watchText(new Uint8Array(body), `an answer ${this.status}`);
  return body;
};
Response.prototype.json = async function (this: Response) {
  return JSON.parse(await this.text());
};
