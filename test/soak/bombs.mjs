// Sends a real service bodies of images that are much larger, slower or longer than their files, four bodies at once, as
// references of batches and as input images in real time, and measures what they cost it: the peak of its memory, and how
// long `/readyz` takes meanwhile; `control` is how long a bare `node:http` server takes, which shows how busy the machine
// is: the worst answer may be late by as much as the control's worst. Run with `node test/soak/bombs.mjs`; needs a build, and 2 GB of memory for the images
// themselves. Options: --root DIR (another checkout), --only TEXT, --seconds N (60, for each kind and way), --memory MB
// (600), --ready MS (100). Prints one JSON document; the exit code is 1 when a limit was passed.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs, promisify } from "node:util";
import { KINDS } from "./bombs/kinds.mjs";
import { send, watch, withService } from "./measured-service.mjs";

const { values: flags } = parseArgs({
  options: {
    root: { type: "string", default: resolve(import.meta.dirname, "../..") },
    only: { type: "string", default: "" },
    seconds: { type: "string", default: "60" },
    memory: { type: "string", default: "600" },
    ready: { type: "string", default: "100" },
  },
});
const MODEL = "vendorx-3.1-flash-image";
const BODIES = 4;
const [BATCH_BYTES, REALTIME_BYTES] = [128 * 1024 * 1024, 90 * 1024 * 1024];
const [BATCH_IMAGES, REALTIME_IMAGES, IMAGES_PER_ITEM] = [600, 14, 3];
const pause = promisify(setTimeout);

const WAYS = {
  batch: { path: "/v1/images/batches", body: batchBody },
  "real time": { path: `/v1beta/models/${MODEL}:generateContent`, body: realtimeBody },
  "one in real time": {
    path: `/v1beta/models/${MODEL}:generateContent`,
    body: (image, mimeType, seed) => realtimeBody(image, mimeType, seed, 1),
  },
};

const bare = `require("http").createServer((q,r)=>r.end("{}")).listen(0,function(){console.log(this.address().port)})`;
const control = spawn(process.execPath, ["-e", bare], { stdio: ["ignore", "pipe", "inherit"] });
const [port] = await once(createInterface({ input: control.stdout }), "line");

const results = {};
for (const [kind, { mimeType, make }] of Object.entries(KINDS)) {
  const ways = Object.entries(WAYS).filter(([way]) => `${kind}, ${way}`.includes(flags.only));
  if (ways.length === 0) continue;
  const image = await make();
  for (const [way, { path, body }] of ways) {
    const name = `${kind}, ${way}`;
    results[name] = await measure(path, (i) => body(image, mimeType, i));
    process.stderr.write(`${name}: ${JSON.stringify(results[name])}\n`);
  }
}
control.kill();
const ok = Object.values(results).every(
  ({ peak_mb, ready, control }) =>
    peak_mb < Number(flags.memory) && ready.max_ms - control.max_ms < Number(flags.ready),
);
process.stdout.write(`${JSON.stringify({ ok, results }, null, 2)}\n`);
process.exitCode = ok ? 0 : 1;

/** A service of its own for each case; cut off after the seconds, when it is still at work. */
function measure(path, bodyOf) {
  return withService(flags.root, async ({ url, key, idle, now, peak }) => {
    const bodies = Array.from({ length: BODIES }, (_, i) => bodyOf(i));
    const over = new AbortController();
    const addresses = [`${url}/readyz`, `http://127.0.0.1:${port}`];
    const watched = Promise.all(addresses.map((address) => watch(address, 20, over.signal)));
    const begin = performance.now();
    const answers = Promise.all(bodies.map((body) => send(url + path, key, body).then(told, String)));
    const late = pause(Number(flags.seconds) * 1000, "not answered");
    const found = await Promise.race([answers, late]);
    const seconds = Math.round((performance.now() - begin) / 100) / 10;
    if (found !== "not answered") await pause(5000);
    const [peak_mb, after_mb] = [peak(), now()];
    over.abort();
    const [ready, control] = await watched;
    const body_mb = Math.round(bodies[0].length / 1e6);
    return { body_mb, answers: found, seconds, idle_mb: idle, peak_mb, after_mb, ready, control };
  });
}

function told({ status, text }) {
  return status === 200 ? status : `${status} ${/"message":\s*"([^"]*)"/.exec(text)?.[1] ?? text}`;
}

function batchBody(image, mimeType, seed) {
  const images = copies(image, BATCH_BYTES, BATCH_IMAGES, seed);
  const items = [];
  for (let i = 0; i < images.length; i += IMAGES_PER_ITEM) {
    const reference_images = images
      .slice(i, i + IMAGES_PER_ITEM)
      .map((data) => ({ mime_type: mimeType, data }));
    items.push({ prompt: "a fox", reference_images });
  }
  return Buffer.from(JSON.stringify({ model: MODEL, items }));
}

function realtimeBody(image, mimeType, seed, most = REALTIME_IMAGES) {
  const images = copies(image, REALTIME_BYTES, most, seed);
  const parts = [{ text: "a fox" }, ...images.map((data) => ({ inlineData: { mimeType, data } }))];
  return Buffer.from(
    JSON.stringify({
      contents: [{ role: "user", parts }],
      generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
    }),
  );
}

/** Base64 of as many copies as a body takes; bytes behind the end of each make them different images. */
function copies(image, bytes, most, seed) {
  const count = Math.max(1, Math.min(most, Math.floor(bytes / ((image.length * 4) / 3))));
  return Array.from({ length: count }, (_, i) =>
    Buffer.concat([image, Buffer.from([0, seed, i >> 8, i & 255])]).toString("base64"),
  );
}
