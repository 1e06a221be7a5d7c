// Lets a real service fetch the results of a job, a file of 1 GB, from an upstream that breaks off each download, and
// measures the peak of the service's memory. Run with `node test/soak/job-results.mjs`; needs a build and 1 GB of disk.
// Options: --root DIR (another checkout), --only TYPE, --images N (122, of 6 MB each), --side PIXELS (1440), --cuts N (40),
// --no-ranges (each download begins anew), --limit MiB (96, above the memory of an idle service), --seed S.
// Prints one JSON document; the exit code is 1 when an image was lost or changed, or when memory was above the limit.
import { createHash, randomFillSync } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { resolve } from "node:path";
import { parseArgs, promisify } from "node:util";
import { crc32 } from "node:zlib";
import sharp from "sharp";
import { withService } from "./measured-service.mjs";

const { values: flags } = parseArgs({
  options: {
    root: { type: "string", default: resolve(import.meta.dirname, "../..") },
    only: { type: "string", default: "" },
    images: { type: "string", default: "122" },
    side: { type: "string", default: "1440" },
    cuts: { type: "string", default: "40" },
    "no-ranges": { type: "boolean", default: false },
    limit: { type: "string", default: "96" },
    seed: { type: "string", default: "1" },
  },
});
const pause = promisify(setTimeout);
const images = Number(flags.images);
const picture = await noise(Number(flags.side));

/** How each upstream wraps an image in a line, and what it says of itself. */
const UPSTREAMS = {
  "native-batch": {
    path: "",
    line: (key) => [
      `{"key":"${key}","response":{"candidates":[{"content":{"parts":[{"inlineData":{"data":"`,
      `"}}]}}]}}\n`,
    ],
    answers: {
      "POST /upload/v1beta/files?upload_id=1": { file: { name: "files/in" } },
      "POST /upload/v1beta/files": {},
      "POST /v1beta/models/m:batchGenerateContent": { name: "batches/b1" },
      "GET /v1beta/batches/b1": {
        name: "batches/b1",
        metadata: {
          ...{ state: "BATCH_STATE_SUCCEEDED", output: { responsesFile: "files/out" } },
          batchStats: { requestCount: String(images), successfulRequestCount: String(images) },
        },
      },
    },
    file: "/v1beta/files/out:download?alt=media",
  },
  "openai-batch": {
    path: "/v1",
    line: (key) => [
      `{"custom_id":"${key}","response":{"status_code":200,"body":{"data":[{"b64_json":"`,
      `"}]}}}\n`,
    ],
    answers: {
      "POST /v1/files": { id: "file-in" },
      "POST /v1/batches": { id: "b1", status: "in_progress" },
      "GET /v1/batches/b1": {
        ...{ id: "b1", status: "completed", output_file_id: "out" },
        request_counts: { total: images, completed: images, failed: 0 },
      },
    },
    file: "/v1/files/out/content",
  },
};

const results = {};
for (const type of Object.keys(UPSTREAMS).filter((type) => type.includes(flags.only))) {
  results[type] = await measure(type);
  process.stderr.write(`${type}: ${JSON.stringify(results[type])}\n`);
}
const ok = Object.values(results).every((result) => result.ok);
process.stdout.write(`${JSON.stringify({ ok, results }, null, 2)}\n`);
process.exitCode = ok ? 0 : 1;

async function measure(type) {
  const { path } = UPSTREAMS[type];
  const file = resultFile(UPSTREAMS[type].line);
  const sent = { bytes: 0, downloads: 0 };
  const server = createServer((request, response) => void answer(type, file, sent, request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const baseUrl = `http://127.0.0.1:${server.address().port}${path}`;
  const provider = {
    name: "upstream",
    type,
    baseUrl,
    apiKeyEnv: "SOAK_KEY",
    pollSeconds: 0.1,
    jobImages: images,
  };
  const models = [{ id: "m", ratios: "common", sizes: ["1K"], prices: { "1K": 0 } }];
  const config = { models, providers: [{ ...provider, models: ["m"] }] };
  try {
    const run = (service) => fetched(service, file, sent);
    return await withService(flags.root, run, { config, env: { SOAK_KEY: "a key of nobody" } });
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Makes a batch, and compares its images with those of the upstream. */
async function fetched({ url, key, idle, peak }, file, sent) {
  const ask = (at, init) => fetch(`${url}/v1/images/batches${at}`, { ...init, headers });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const items = Array.from({ length: images }, (_, i) => ({ custom_id: `i${i}`, prompt: "noise" }));
  const startedMs = Date.now();
  const made = await ask("", { method: "POST", body: JSON.stringify({ model: "m", items }) });
  let batch = await made.json();
  if (!made.ok) throw new Error(JSON.stringify(batch));
  while (["queued", "running", "processing_results", "settling"].includes(batch.status)) {
    await pause(200);
    batch = await (await ask(`/${batch.id}`)).json();
  }
  const seconds = Math.round((Date.now() - startedMs) / 100) / 10;
  const peak_mb = peak();
  const above_mib = Math.round(((peak_mb - idle) * 1e3) / 1024);
  let wrong = 0;
  for (const [i, sha256] of file.hashes.entries()) {
    const image = Buffer.from(await (await ask(`/${batch.id}/items/i${i}/content`)).arrayBuffer());
    if (createHash("sha256").update(image).digest("hex") !== sha256) wrong++;
  }
  const isRight = batch.success_count === images && wrong === 0;
  return {
    ...{
      ok: isRight && above_mib < Number(flags.limit),
      status: batch.status,
      made: batch.success_count,
      wrong,
    },
    ...{
      file_mb: Math.round(file.size / 1e6),
      sent_mb: Math.round(sent.bytes / 1e6),
      downloads: sent.downloads,
    },
    ...{ idle_mb: idle, peak_mb, above_mib, seconds },
  };
}

async function answer(type, file, sent, request, response) {
  const { answers, file: path } = UPSTREAMS[type];
  const { method, url, headers } = request;
  for await (const _ of request);
  if (url === path) return download(file, sent, headers.range, response);
  const body = answers[`${method} ${url}`];
  // All other requests are lists or deletions.
  response.setHeader("content-type", "application/json");
  if (url.startsWith("/upload/")) response.setHeader("x-goog-upload-url", "/upload/v1beta/files?upload_id=1");
  response.end(JSON.stringify(body ?? {}));
}

/** Sends the file from where it is asked for, and breaks off while cuts are left. */
async function download(file, sent, range, response) {
  const ranged = flags["no-ranges"] ? undefined : range;
  const start = Number(/^bytes=(\d+)-$/.exec(ranged ?? "")?.[1] ?? 0);
  const cut = sent.downloads++ < Number(flags.cuts) ? start + cutAfter(sent.downloads, file.size) : file.size;
  const size = { "content-length": file.size - start };
  if (start > 0) size["content-range"] = `bytes ${start}-${file.size - 1}/${file.size}`;
  response.writeHead(start > 0 ? 206 : 200, size);
  response.on("error", () => {});
  for (const piece of file.pieces(start, Math.min(cut, file.size))) {
    sent.bytes += piece.length;
    if (!(await isTaken(response, piece))) return;
  }
  if (cut < file.size) response.destroy();
  else response.end();
}

/** Resolves once the piece is on its way; with false when nobody takes it. */
function isTaken(response, piece) {
  return new Promise((done) => response.write(piece, (error) => done(!error)));
}

/** After how many bytes the nth download breaks off: anywhere, and with ranges, soon enough for all cuts. */
function cutAfter(nth, size) {
  const [random] = new Uint32Array(
    createHash("sha256").update(`${flags.seed} ${nth}`).digest().buffer.slice(0, 4),
  );
  const most = flags["no-ranges"] ? size : (2 * size) / (Number(flags.cuts) + 1);
  return Math.floor((random / 2 ** 32) * most);
}

/** The file is made while it is sent: its images differ in a few bytes only. */
function resultFile(line) {
  const lines = [];
  const hashes = [];
  let size = 0;
  for (let i = 0; i < images; i++) {
    const image = numbered(picture, i);
    hashes.push(createHash("sha256").update(image).digest("hex"));
    const [before, after] = line(`i${i}`);
    const length = before.length + Math.ceil(image.length / 3) * 4 + after.length;
    const text = () => Buffer.from(before + numbered(picture, i).toString("base64") + after);
    lines.push({ start: size, length, text });
    size += length;
  }
  return {
    ...{ size, hashes },
    *pieces(from, to) {
      for (const { start, length, text } of lines) {
        if (start + length <= from || start >= to) continue;
        const bytes = text().subarray(Math.max(0, from - start), Math.min(length, to - start));
        for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
      }
    },
  };
}

/** A PNG with a number in a chunk that readers skip. */
function numbered(png, number) {
  const typed = Buffer.from(`nuMb${String(number).padStart(8, "0")}`);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(typed.length - 4);
  sum.writeUInt32BE(crc32(typed));
  const end = png.length - 12;
  return Buffer.concat([png.subarray(0, end), length, typed, sum, png.subarray(end)]);
}

/** Noise, which nothing makes smaller. */
function noise(side) {
  const raw = { width: side, height: side, channels: 3 };
  return sharp(randomFillSync(Buffer.alloc(side * side * 3)), { raw })
    .png({ compressionLevel: 0 })
    .toBuffer();
}
