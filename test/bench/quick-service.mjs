// A service whose provider answers at once, or after LATENCY_MS, and beside it a server that sends its images one after the other, unchecked,
// and at /memory the bytes of all objects that are still in use (with --expose-gc).
//   node quick-service.mjs DATA_DIRECTORY [LATENCY_MS]

import { once } from "node:events";
import { createReadStream } from "node:fs";
import { readdir } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseConfig } from "../../build/config/load.js";
import { silentLog } from "../../build/kernel/log.js";
import { startService } from "../../build/service/start-service.js";

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);
const [dataDirectory = "", latencyMs] = process.argv.slice(2);
const provider = {
  kind: "item",
  name: "procedural",
  concurrency: 2,
  serves: () => true,
  generate: async () => {
    if (latencyMs !== undefined) await sleep(Number(latencyMs));
    return { images: [PNG], modelVersion: null };
  },
  close: async () => {},
};
const { url, credentials } = await startService({
  config: parseConfig(
    {
      limits: { downloadsPerKey: 16, zipBytes: 4e9 },
      models: [{ id: "vendorx-3.1-flash-image", prices: { "1K": 0 } }],
    },
    "bench",
  ),
  dataDirectory,
  address: { host: "127.0.0.1", port: 0 },
  announceUrl: true,
  workers: true,
  log: silentLog,
  providers: [provider],
});

const raw = createServer(async ({ url: path }, response) => {
  if (path === "/memory") return response.end(String(await usedBytes()));
  const entries = await readdir(join(dataDirectory, "blobs"), { recursive: true, withFileTypes: true });
  for (const entry of entries.filter((each) => each.isFile())) {
    const image = createReadStream(join(entry.parentPath, entry.name));
    image.pipe(response, { end: false });
    await once(image, "end");
  }
  response.end();
});
raw.listen(0, "127.0.0.1", () => {
  const rawUrl = `http://127.0.0.1:${raw.address().port}`;
  process.stdout.write(`${JSON.stringify({ url, key: credentials.api_key, rawUrl })}\n`);
});

async function usedBytes() {
  // Memory that the first collection finalizes is free after the second.
  for (let round = 0; round < 2; round++) {
    globalThis.gc();
    await sleep(100);
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
