// Large inputs through the real program and a real service (whose pictures are made at once): the command's memory
// must not grow with them. Run with `node test/soak/large-inputs.mjs`; needs a build, and with the usual numbers 10 GB of
// disk. Options: --prompts N,N (430,10000), --lines N,N (10000,20000, of 30 000 bytes each: 300 and 600 MB),
// --references N (400), --inline N (100, in the lines themselves), --megabytes N (5, of each reference), --limit MB (300),
// --embedded (the command runs the service itself; then the limit is for both).
// The last line of standard output is a summary as JSON; the exit code is 1 when a run failed or took more memory.
import { spawn } from "node:child_process";
import { randomFillSync } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, open, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import sharp from "sharp";

const ROOT = resolve(import.meta.dirname, "../..");
/** Runs in the command's own process: what it took at most, written down at its end. */
const WATCH = `data:text/javascript,${encodeURIComponent(
  'import { writeFileSync } from "node:fs"; process.on("exit", () => writeFileSync(process.env.PEAK_FILE, String(process.resourceUsage().maxRSS)));',
)}`;

const { values } = parseArgs({
  options: {
    prompts: { type: "string", default: "430,10000" },
    lines: { type: "string", default: "10000,20000" },
    references: { type: "string", default: "400" },
    inline: { type: "string", default: "100" },
    megabytes: { type: "string", default: "5" },
    limit: { type: "string", default: "300" },
    embedded: { type: "boolean", default: false },
    root: { type: "string", default: ROOT },
  },
});
const root = await mkdtemp(join(tmpdir(), "imgbatch-large-"));
const data = join(root, "data");
const service = spawn(process.execPath, [join(ROOT, "test/soak/quick-service.mjs")], {
  stdio: ["pipe", "pipe", "inherit"],
});
const results = [];
try {
  const lines = createInterface({ input: service.stdout })[Symbol.asyncIterator]();
  await lines.next();
  service.stdin.write(
    `${JSON.stringify({ data, generations: join(root, "made.log"), boot: 1, die: null })}\n`,
  );
  const { url } = JSON.parse((await lines.next()).value);
  await topUp();
  const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
  for (const count of values.prompts.split(",").map(Number).filter(Boolean)) {
    const makeItem = (i) => ({ prompt: `${i} ${"a long prompt ".repeat(20)}` });
    await measure(`${count} prompts`, count, makeItem, { url, key });
  }
  for (const count of values.lines.split(",").map(Number).filter(Boolean)) {
    // As many bytes as a prompt can have: 7500 characters of four.
    const makeItem = (i) => ({ prompt: `${i} ${"🐈🐕🦊".repeat(2495)}` });
    await measure(`${count} lines of 30 kB`, count, makeItem, { url, key });
  }
  const [count, megabytes] = [Number(values.references), Number(values.megabytes)];
  if (count > 0) {
    const paths = await makeReferences(count, megabytes);
    const makeItem = (i) => ({ prompt: `like this one, ${i}`, reference_images: [paths[i]] });
    await measure(`${count} references of ${megabytes} MB`, count, makeItem, { url, key });
  }
  const inline = Number(values.inline);
  if (inline > 0) {
    const paths = await makeReferences(inline, megabytes);
    const makeItem = async (i) => {
      const data = (await readFile(paths[i])).toString("base64");
      return { prompt: `like this one, ${i}`, reference_images: [{ mime_type: "image/png", data }] };
    };
    await measure(`${inline} inline references of ${megabytes} MB`, inline, makeItem, { url, key });
  }
} finally {
  service.kill("SIGTERM");
  await once(service, "close");
  await rm(root, { recursive: true, force: true });
}
const ok = results.every((result) => result.ok);
process.stdout.write(`${JSON.stringify({ ok, results })}\n`);
process.exitCode = ok ? 0 : 1;

/** Tens of thousands of images cost more than a new service lends. */
async function topUp() {
  const program = join(values.root, "bin/imgbatch.cjs");
  const args = [program, "admin", "accounts", "top-up", "default", "10000", "--data", data];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "inherit"] });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`the top-up ended with exit code ${code}`);
}

async function measure(name, count, makeItem, { url, key }) {
  const dir = await mkdtemp(join(root, "run-"));
  const input = join(root, `${name.replaceAll(" ", "-")}.jsonl`);
  const file = await open(input, "w");
  for (let i = 0; i < count; i++) await file.write(`${JSON.stringify(await makeItem(i))}\n`);
  await file.close();
  const peakFile = join(root, "peak");
  const own = values.embedded ? {} : { IMGBATCH_BASE_URL: url, IMGBATCH_API_KEY: key };
  const env = { ...process.env, ...own, PEAK_FILE: peakFile };
  const args = [
    "--import",
    WATCH,
    join(values.root, "bin/imgbatch.cjs"),
    "submit",
    input,
    "-o",
    join(dir, "out"),
    ...(values.embedded ? ["--data", join(dir, "data")] : []),
    "--json",
  ];
  const startedMs = Date.now();
  const child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  let bytes = 0;
  child.stdout.on("data", (text) => {
    bytes += text.length;
  });
  const [code] = await once(child, "close");
  const seconds = (Date.now() - startedMs) / 1000;
  const megabytes = Math.round((Number(await readFile(peakFile, "utf8")) * 1024) / 1e6);
  const images = (await readdir(join(dir, "out/images")).catch(() => [])).length;
  const status = await readFile(`/proc/${service.pid}/status`, "utf8").catch(() => "");
  const serviceMegabytes = Math.round(Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1000);
  const ok = code === 0 && images === count && megabytes < Number(values.limit);
  results.push({ name, ok, code, images, seconds, megabytes, serviceMegabytes, stdoutBytes: bytes });
  process.stderr.write(
    `${name}: ${images} images in ${seconds.toFixed(1)} s, ${megabytes} MB (service: ${serviceMegabytes} MB)\n`,
  );
  await rm(dir, { recursive: true, force: true });
  await rm(input);
}

/** Noise, which nothing makes smaller. */
async function makeReferences(count, megabytes) {
  const folder = join(root, "references");
  await mkdir(folder, { recursive: true });
  const side = Math.floor(Math.sqrt((megabytes * 1e6) / 3));
  const noise = Buffer.alloc(side * side * 3);
  const paths = [];
  for (let i = 0; i < count; i++) {
    randomFillSync(noise);
    const path = join(folder, `${i}.png`);
    const raw = { width: side, height: side, channels: 3 };
    await sharp(noise, { raw }).png({ compressionLevel: 0 }).toFile(path);
    paths.push(path);
  }
  return paths;
}
