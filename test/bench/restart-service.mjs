// A service whose provider answers at once, or (`hold`) never. Says when it is ready and when it has its first item.
//   node restart-service.mjs DATA_DIRECTORY [hold]

import { parseConfig } from "../../build/config/load.js";
import { Feed } from "../../build/domain/feed.js";
import { silentLog } from "../../build/kernel/log.js";
import { startService } from "../../build/service/start-service.js";

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);
const [dataDirectory, mode] = process.argv.slice(2);
const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const feed = new Feed();
const unsubscribe = feed.subscribe((event) => {
  if (event.type !== "item") return;
  unsubscribe();
  say({ event: "item" });
});
const provider = {
  kind: "item",
  name: "procedural",
  concurrency: 2,
  serves: () => true,
  generate: () =>
    mode === "hold" ? new Promise(() => {}) : Promise.resolve({ images: [PNG], modelVersion: null }),
  close: async () => {},
};
const { url, credentials } = await startService({
  config: parseConfig({}, "bench"),
  dataDirectory,
  address: { host: "127.0.0.1", port: 0 },
  announceUrl: true,
  workers: true,
  log: silentLog,
  providers: [provider],
  feed,
});
say({ event: "ready", url, key: credentials.api_key });
