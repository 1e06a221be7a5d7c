// Sends a real service the largest bodies that it takes, and measures what they cost it: the peak of its memory, and how
// long others wait for an answer meanwhile. Run with `node test/soak/large-bodies.mjs`; needs a build, and 1 GB of memory
// for the bodies themselves. Options: --root DIR (another checkout), --only TEXT, --limit MB (300, of the service).
// Prints one JSON document; the exit code is 1 when a body was not taken or cost more memory.
import { randomFillSync } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs, promisify } from "node:util";
import sharp from "sharp";
import { send, watch, withService } from "./measured-service.mjs";

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
function measure(bodies) {
  return withService(flags.root, async ({ url, key, data, idle, now, peak }) => {
    const done = new AbortController();
    const watched = watch(`${url}/healthz`, 5, done.signal);
    const begin = performance.now();
    const answers = await Promise.all(bodies.map(([path, body]) => send(url + path, key, body)));
    const seconds = Math.round(performance.now() - begin) / 1000;
    done.abort();
    const peak_mb = peak();
    await pause(3000);
    const left = (await readdir(join(data, "blobs/drafts")).catch(() => [])).length;
    const statuses = answers.map(({ status }) => status);
    return { statuses, seconds, idle_mb: idle, peak_mb, after_mb: now(), left, health: await watched };
  });
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
