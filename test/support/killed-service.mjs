// A service in a process of its own that kills itself, without any goodbye, at the moment that it is told to:
//   node killed-service.mjs DATA_DIRECTORY MOMENT [paid]
// MOMENT is a batch status (just committed; `queued:2` for the second time), `item:N` (the Nth item was just committed),
// `making:N` (the Nth request has just reached the provider) or `input:N` (the Nth input file is about to get its name). Prints a line of JSON when it is ready.
// `answer:N`: the Nth answer to a keyed request is about to get its name. `reply:N`: the Nth image is about to be sent. `paid`: the provider is an upstream that costs money.

import { promises } from "node:fs";
import { ServerResponse } from "node:http";
import { syncBuiltinESMExports } from "node:module";
import { parseConfig } from "../../build/config/load.js";
import { Feed } from "../../build/domain/feed.js";
import { silentLog } from "../../build/kernel/log.js";
import { startService } from "../../build/service/start-service.js";

const [dataDirectory, moment, paid] = process.argv.slice(2);
const die = () => process.kill(process.pid, "SIGKILL");

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);

let requests = 0;
let items = 0;
let inputs = 0;
let answers = 0;
let replies = 0;
const statuses = {};
const { rename } = promises;
promises.rename = async (from, to) => {
  if (String(to).includes("/inputs/") && moment === `input:${++inputs}`) die();
  if (String(to).includes("/answers/") && moment === `answer:${++answers}`) die();
  return rename(from, to);
};
syncBuiltinESMExports();
const { end } = ServerResponse.prototype;
ServerResponse.prototype.end = function (...args) {
  if (this.req.url.endsWith(":generateContent") && moment === `reply:${++replies}`) die();
  return end.apply(this, args);
};
const feed = new Feed();
feed.subscribe((event) => {
  if (event.type === "item" && moment === `item:${++items}`) die();
  if (event.type !== "batch") return;
  if (event.status === moment) die();
  statuses[event.status] = (statuses[event.status] ?? 0) + 1;
  if (moment === `${event.status}:${statuses[event.status]}`) die();
});
const upstream = {
  type: "native",
  identity: "native http://vendor",
  fingerprint: "vendor-1",
  isFree: false,
  takes: { maxReferences: 14, ratios: "any", tiers: "any" },
  disabled: null,
  uses: ["batches", "realtime"],
  modelFor: (_, executed) => executed,
  probe: async () => {},
};
const provider = {
  kind: "item",
  name: "procedural",
  concurrency: 1,
  serves: () => true,
  ...(paid === "paid" ? { upstream } : {}),
  generate: async (_request, _signal, onSent) => {
    onSent?.();
    if (moment === `making:${++requests}`) die();
    return { images: [PNG], modelVersion: null };
  },
  close: async () => {},
};
const { url, credentials } = await startService({
  config: parseConfig({ limits: { unknownOutcome: "once" } }, "test"),
  dataDirectory,
  address: { host: "127.0.0.1", port: 0 },
  announceUrl: true,
  workers: true,
  log: silentLog,
  providers: [provider],
  feed,
});
process.stdout.write(`${JSON.stringify({ url, key: credentials.api_key })}\n`);
