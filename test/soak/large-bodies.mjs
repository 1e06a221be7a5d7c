// Sends a real service the largest bodies that it takes, and measures what they cost it: the peak of its memory, and how
// long others wait for an answer meanwhile. Run with `node test/soak/large-bodies.mjs`; needs a build, and 1 GB of memory
// for the bodies themselves. Options: --root DIR (another checkout), --only TEXT, --limit MB (300, of the service).
// Prints one JSON document; the exit code is 1 when a body was not taken or cost more memory.
import { spawn } from "node:child_process";
import { randomFillSync } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs, promisify } from "node:util";
import sharp from "sharp";

const { values: flags } = parseArgs({
  options: {
    root: { type: "string", default: resolve(import.meta.dirname, "../..") },
    only: { type: "string", default: "" },
    limit: { type: "string", default: "300" },
  },
});
const MODEL = "vendorx-3.1-flash-image";
const pause = promisify(setTimeout);

const pictures = await makePictures(25, 5.1e6);
const reference = (data) => ({ mime_type: "image/png", data });
const create = Buffer.from(
  JSON.stringify({
    model: MODEL,
    items: pictures.map((data) => ({ prompt: "a [[delay:1h]]", reference_images: [reference(data)] })),
  }),
);
const edit = Buffer.from(
  JSON.stringify({
    contents: [
      {
        role: "user",
        parts: [
          { text: "a fox" },
          ...pictures.slice(0, 14).map((data) => ({ inlineData: { mimeType: "image/png", data } })),
        ],
      },
    ],
    generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
  }),
);
const CASES = {
  "one create": [["/v1/images/batches", create]],
  "four creates": Array.from({ length: 4 }, () => ["/v1/images/batches", create]),
  "one edit": [[`/v1beta/models/${MODEL}:generateContent`, edit]],
  "four edits": Array.from({ length: 4 }, () => [`/v1beta/models/${MODEL}:generateContent`, edit]),
};

const results = {};
for (const [name, bodies] of Object.entries(CASES)) {
  if (!name.includes(flags.only)) continue;
  results[name] = await measure(bodies);
  process.stderr.write(`${name}: ${JSON.stringify(results[name])}\n`);
}
const ok = Object.values(results).every(
  ({ statuses, peak_mb }) => statuses.every((status) => status === 200) && peak_mb < Number(flags.limit),
);
process.stdout.write(`${JSON.stringify({ ok, results }, null, 2)}\n`);
process.exitCode = ok ? 0 : 1;

/** A service of its own for each case, so that none finds what another left. */
async function measure(bodies) {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bodies-"));
  const bin = join(flags.root, "bin/imgbatch.mjs");
  const service = spawn(process.execPath, [bin, "serve", "--data", data, "--port", "0"], {
    cwd: data,
    stdio: ["ignore", "pipe", "ignore"],
  });
  try {
    const lines = createInterface({ input: service.stdout })[Symbol.asyncIterator]();
    const { url } = JSON.parse((await lines.next()).value);
    const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
    await pause(1000);
    const idle_mb = memory(service.pid).VmRSS;
    writeFileSync(`/proc/${service.pid}/clear_refs`, "5");
    const done = new AbortController();
    const watched = watch(url, done.signal);
    const begin = performance.now();
    const statuses = await Promise.all(bodies.map(([path, body]) => send(url + path, key, body)));
    const seconds = Math.round(performance.now() - begin) / 1000;
    done.abort();
    const peak_mb = memory(service.pid).VmHWM;
    await pause(3000);
    const after_mb = memory(service.pid).VmRSS;
    const left = (await readdir(join(data, "blobs/drafts")).catch(() => [])).length;
    return { statuses, seconds, idle_mb, peak_mb, after_mb, left, ...(await watched) };
  } finally {
    service.kill("SIGKILL");
    await once(service, "close");
    await rm(data, { recursive: true, force: true });
  }
}

function send(url, key, body) {
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    "content-length": body.length,
  };
  return new Promise((done, fail) => {
    const sent = request(url, { method: "POST", headers, agent: false }, (answer) => {
      answer.resume();
      answer.once("end", () => done(answer.statusCode));
    });
    sent.once("error", fail);
    sent.end(body);
  });
}

/** Asks whether the service is alive, again and again. */
async function watch(url, signal) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const times = [];
  while (!signal.aborted) {
    const begin = performance.now();
    await new Promise((done, fail) => {
      request(`${url}/healthz`, { agent }, (answer) => {
        answer.resume();
        answer.once("end", done);
      })
        .once("error", fail)
        .end();
    });
    times.push(performance.now() - begin);
    await pause(5);
  }
  agent.destroy();
  times.sort((a, b) => a - b);
  const at = (share) => Math.round((times[Math.floor(times.length * share)] ?? times.at(-1)) * 10) / 10;
  return { health: { asked: times.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) } };
}

/** Lines of `/proc/PID/status` that are sizes, in MB. */
function memory(pid) {
  const lines = readFileSync(`/proc/${pid}/status`, "utf8").matchAll(/^(\w+):\s+(\d+) kB$/gm);
  return Object.fromEntries([...lines].map(([, name, kb]) => [name, Math.round(Number(kb) / 1000)]));
}

/** Base64 of noise, which nothing makes smaller; all different. */
async function makePictures(count, bytes) {
  const side = Math.floor(Math.sqrt(bytes / 3));
  const noise = randomFillSync(Buffer.alloc(side * side * 3));
  const made = [];
  for (let i = 0; i < count; i++) {
    noise[0] = i;
    const raw = { width: side, height: side, channels: 3 };
    const png = await sharp(noise, { raw }).png({ compressionLevel: 0 }).toBuffer();
    made.push(png.toString("base64"));
  }
  return made;
}
