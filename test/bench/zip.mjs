import { spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { crc32 } from "node:zlib";
import Sqlite from "better-sqlite3";
import { median, timed } from "./measure.mjs";
import { startQuickService } from "./start-quick-service.mjs";

const ROUNDS = 5;
const IMAGES = 200;
const IMAGE_BYTES = 5 * 1024 * 1024;
const READERS = 8;
const READER_BYTES_PER_SECOND = 10e6;
const SLOW_MS = 10_000;

/** Megabytes per second of the ZIP of a batch over HTTP, against `zip -0` and against its images sent as they are. */
export async function measureZip() {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  try {
    const path = await prepare(data);
    const rows = await withService(data, (service) => measureRates(service, path, data));
    // In a new process: the first one has also served the baseline, which would count as memory of the readers.
    return [...rows, await withService(data, (service) => measureSlowReaders(service, path))];
  } finally {
    await rm(data, { recursive: true, force: true });
  }
}

async function withService(data, work) {
  const service = await startQuickService(data);
  try {
    return await work(service);
  } finally {
    await service.stop();
  }
}

async function measureRates({ url, key, rawUrl }, path, data) {
  const zipUrl = `${url}${path}`;
  const { bytes } = await fetchAll(zipUrl, { key });
  const [times, baseline, raw] = [[], [], []];
  for (let round = 0; round < ROUNDS; round++) {
    times.push(await timed(() => fetchAll(zipUrl, { key })));
    raw.push(await timed(() => fetchAll(rawUrl, {})));
    baseline.push(await timed(() => zipFiles(join(data, "blobs"))));
  }
  const ranges = [];
  for (const start of [bytes - 1000, Math.floor(bytes / 2), 1000]) {
    const range = `bytes=${start}-${start + 999}`;
    const each = [];
    for (let round = 0; round < 9; round++) {
      each.push(await timed(() => fetchAll(zipUrl, { key, range })));
    }
    ranges.push(median(each));
  }
  // The whole machine is too busy in some rounds: the quickest ones tell the most.
  const best = { zip: Math.min(...baseline), ours: Math.min(...times), raw: Math.min(...raw) };
  const rate = (ms) => `${(bytes / 1000 / ms).toFixed(0)} MB/s`;
  return [
    {
      name: "a ZIP over HTTP against zip -0",
      value: best.zip / best.ours,
      goal: { atLeast: 2.5 },
      facts: { "zip -0": rate(best.zip), "ZIP over HTTP": rate(best.ours) },
    },
    {
      name: "a ZIP over HTTP against its images, unchecked",
      value: best.raw / best.ours,
      goal: { atLeast: 0.8 },
      facts: { "its images over HTTP": rate(best.raw) },
    },
    {
      name: "1 kB of a ZIP",
      value: Math.max(...ranges),
      unit: "ms",
      goal: { atMost: 20 },
      facts: { "at the end, in the middle, at the start": ranges.map((ms) => ms.toFixed(0)).join(", ") },
    },
  ];
}

/** Makes a batch, and puts large images of random bytes in the place of its own. Returns the path of its ZIP. */
async function prepare(data) {
  const { url, key, stop } = await startQuickService(data);
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const items = Array.from({ length: IMAGES }, (_, i) => ({ prompt: `number ${i}` }));
  const body = JSON.stringify({ model: "vendorx-3.1-flash-image", items });
  const batches = `${url}/v1/images/batches`;
  const { id } = await (await fetch(batches, { method: "POST", headers, body })).json();
  const status = async () => (await (await fetch(`${batches}/${id}`, { headers })).json()).status;
  while ((await status()) !== "completed") await sleep(50);
  await stop();
  const db = new Sqlite(join(data, "imgbatch.db"));
  const update = db.prepare("UPDATE outputs SET size_bytes = ?, sha256 = ?, crc32 = ? WHERE blob_key = ?");
  for (const { blob_key } of db.prepare("SELECT blob_key FROM outputs").all()) {
    const bytes = randomBytes(IMAGE_BYTES);
    await writeFile(join(data, "blobs", blob_key), bytes);
    update.run(bytes.length, createHash("sha256").update(bytes).digest("hex"), crc32(bytes), blob_key);
  }
  db.close();
  return `/v1/images/batches/${id}/download`;
}

/** Reads a whole response and drops it. `pace`: bytes per second; default: as they come. */
function fetchAll(url, { key, range, pace, signal }) {
  const { hostname, port, pathname } = new URL(url);
  return new Promise((resolve, reject) => {
    let bytes = 0;
    const onread = {
      buffer: Buffer.allocUnsafe(pace === undefined ? 1024 * 1024 : 64 * 1024),
      callback: (length, buffer) => {
        if (bytes === 0 && !/^HTTP\/1.1 20[06] /.test(buffer.toString("latin1", 0, 20))) {
          reject(new Error(buffer.toString("latin1", 0, length)));
        }
        bytes += length;
        if (pace === undefined) return true;
        setTimeout(() => socket.resume(), (length / pace) * 1000);
        return false;
      },
    };
    const socket = connect({ host: hostname, port: Number(port), onread, signal }, () => {
      const headers = [`Host: ${hostname}`, "Connection: close"];
      if (key) headers.push(`Authorization: Bearer ${key}`);
      if (range) headers.push(`Range: ${range}`);
      socket.write(`GET ${pathname} HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`);
    });
    socket.on("error", reject);
    socket.on("close", () => resolve({ bytes }));
  });
}

function zipFiles(directory) {
  const options = { cwd: directory, stdio: ["ignore", "ignore", "inherit"] };
  const { error, status } = spawnSync("zip", ["-0", "-q", "-r", "-", "."], options);
  if (error || status !== 0) throw error ?? new Error(`zip ended with ${status}`);
}

/** The most memory that the service takes while slow readers take the ZIP. */
async function measureSlowReaders({ url, key, pid }, path) {
  const idleBytes = rssOf(pid);
  const end = new AbortController();
  setMaxListeners(0, end.signal);
  const options = { key, pace: READER_BYTES_PER_SECOND, signal: end.signal };
  const readers = Array.from({ length: READERS }, () => fetchAll(`${url}${path}`, options).catch(() => {}));
  let peak = 0;
  const start = performance.now();
  while (performance.now() - start < SLOW_MS) {
    peak = Math.max(peak, rssOf(pid));
    await sleep(100);
  }
  end.abort();
  await Promise.all(readers);
  const mib = (n) => n / 1024 / 1024;
  return {
    name: `memory of ${READERS} slow readers of a ZIP, above that at rest`,
    value: mib(peak - idleBytes),
    unit: "MiB",
    goal: { atMost: 64 },
    facts: { "at rest": `${mib(idleBytes).toFixed(0)} MiB` },
  };
}

function rssOf(pid) {
  return Number(spawnSync("ps", ["-o", "rss=", "-p", String(pid)], { encoding: "utf8" }).stdout) * 1024;
}
