// Sends a real service the largest bodies that it takes, of images and of anything else, and measures what they cost it: the
// peak of its memory, and how long others wait for an answer meanwhile. Run with `node test/soak/large-bodies.mjs`; needs a build, and 1 GB of memory
// for the bodies themselves. Options: --root DIR (another checkout), --only TEXT, --limit MB (300, of the service).
// Prints one JSON document; the exit code is 1 when a body got another status or cost more memory.
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
const CREATE = "/v1/images/batches";
const EDIT = `/v1beta/models/${MODEL}:generateContent`;
const JOB = `/v1beta/models/${MODEL}:batchGenerateContent`;
/** Text whose every copy takes twice its bytes. */
const wide = (bytes) => `\u4e00${"x".repeat(bytes - 3)}`;
const creating = (more) => JSON.stringify({ model: MODEL, items: [{ prompt: "a [[delay:1h]]" }], ...more });
const names = () =>
  Object.fromEntries(Array.from({ length: 190_000 }, (_, i) => [`${i}`.padEnd(940, "n"), 1]));
const prompts = (count, bytes) =>
  creating({ items: Array.from({ length: count }, (_, i) => ({ prompt: `${i} ${wide(bytes)}` })) });
const inline = () =>
  JSON.stringify({
    batch: {
      inputConfig: {
        requests: {
          requests: pictures.slice(0, 2).map((data) => ({
            request: {
              contents: [
                { parts: [{ text: "a [[delay:1h]]" }, { inlineData: { mimeType: "image/png", data } }] },
              ],
              generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
            },
          })),
        },
      },
    },
  });
const line = (body) =>
  JSON.stringify({ custom_id: "a", method: "POST", url: "/v1/images/generations", body });
/** Each: the status, how many at once, where to, and the body. The first line of a file is the body of `/v1/batches`. */
const CASES = {
  "one create": [200, 1, CREATE, () => create],
  "four creates": [200, 4, CREATE, () => create],
  "one edit": [200, 1, EDIT, () => edit],
  "four edits": [200, 4, EDIT, () => edit],
  "a name of 180 MB": [400, 1, CREATE, () => creating({ [wide(180e6)]: 1 })],
  "190,000 names of 940 characters": [400, 4, CREATE, () => creating({ extra: names() })],
  "an unknown field of 190 MB": [200, 4, CREATE, () => creating({ extra: { deep: [wide(190e6)] } })],
  "a model of 180 MB": [400, 4, CREATE, () => creating({ model: wide(180e6) })],
  "a prompt of 180 MB": [400, 1, CREATE, () => prompts(1, 180e6)],
  "200 prompts of 940 kB": [400, 4, CREATE, () => prompts(200, 940e3)],
  "a text of 95 MB": [400, 4, EDIT, () => JSON.stringify({ contents: [{ parts: [{ text: wide(95e6) }] }] })],
  "100 MB of zeros": [400, 2, CREATE, () => `{"model":"${MODEL}","items":[${"0,".repeat(50e6)}0]}`],
  "brackets, as deep as they are many": [400, 2, CREATE, () => "[".repeat(100e6)],
  "closed brackets": [400, 2, CREATE, () => "[".repeat(50e6) + "]".repeat(50e6)],
  "100 MB of blanks": [400, 2, CREATE, () => `${" ".repeat(100e6)}{}`],
  "a prompt of escapes": [
    400,
    2,
    CREATE,
    () => creating({ items: [{ prompt: "A".repeat(16e6) }] }).replaceAll("A", "\\u0041"),
  ],
  "a body that is cut off": [400, 2, CREATE, () => String(create).slice(0, -1)],
  "a body where none belongs": [405, 2, "/healthz", () => " ".repeat(100e6)],
  "a job with its images": [200, 4, JOB, inline],
  "a line whose model has 95 MB": [200, 12, "/v1/batches", () => line({ prompt: "a", model: wide(95e6) })],
  "a line of 95 MB": [200, 12, "/v1/batches", () => line({ prompt: "a [[delay:1h]]", extra: wide(95e6) })],
};

const results = {};
for (const [name, [status, count, path, make]] of Object.entries(CASES)) {
  if (!name.includes(flags.only)) continue;
  results[name] = { expected: status, ...(await measure(count, path, Buffer.from(make()))) };
  process.stderr.write(`${name}: ${JSON.stringify(results[name])}\n`);
}
const ok = Object.values(results).every(
  ({ expected, statuses, peak_mb }) =>
    statuses.every((status) => status === expected) && peak_mb < Number(flags.limit),
);
process.stdout.write(`${JSON.stringify({ ok, results }, null, 2)}\n`);
process.exitCode = ok ? 0 : 1;

/** A service of its own for each case, so that none finds what another left. */
function measure(count, path, bytes) {
  return withService(flags.root, async ({ url, key, data, idle, now, peak }) => {
    const isFile = path === "/v1/batches";
    const body = isFile ? await batchOf(url, key, bytes) : bytes;
    const done = new AbortController();
    const watched = watch(`${url}/healthz`, 5, done.signal);
    const begin = performance.now();
    const answers = await Promise.all(Array.from({ length: count }, () => send(url + path, key, body)));
    const seconds = Math.round(performance.now() - begin) / 1000;
    // A worker reads the lines afterwards.
    if (isFile) await pause(10_000);
    done.abort();
    const peak_mb = peak();
    await pause(3000);
    const left = (await readdir(join(data, "blobs/drafts")).catch(() => [])).length;
    const statuses = answers.map(({ status }) => status);
    return { statuses, seconds, idle_mb: idle, peak_mb, after_mb: now(), left, health: await watched };
  });
}

/** Uploads a file of lines. Returns the body that makes a batch of it. */
async function batchOf(url, key, lines) {
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("file", new Blob([lines]), "lines.jsonl");
  const headers = { authorization: `Bearer ${key}` };
  const { id } = await (await fetch(`${url}/v1/files`, { method: "POST", headers, body: form })).json();
  const batch = { input_file_id: id, endpoint: "/v1/images/generations", completion_window: "24h" };
  return Buffer.from(JSON.stringify(batch));
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
