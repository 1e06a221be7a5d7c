// Large inputs through the real program and a real service (whose pictures are made at once): the command's memory
// must not grow with them. Run with `node test/soak/large-inputs.mjs`; needs a build, and with the usual numbers 7 GB of
// disk. Options: --prompts N,N (430,10000), --references N (400), --megabytes N (5, of each reference), --limit MB (300),
// --embedded (the service is inside the command, with its own provider: the limit holds for both together).
// The last line of standard output is a summary as JSON; the exit code is 1 when a run failed or took more memory.
import { spawn } from "node:child_process";
import { randomFillSync } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
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
    references: { type: "string", default: "400" },
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
  const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
  for (const count of values.prompts.split(",").map(Number).filter(Boolean)) {
    const items = Array.from({ length: count }, (_, i) => ({
      prompt: `${i} ${"a long prompt ".repeat(20)}`,
    }));
    await measure(`${count} prompts`, items, { url, key });
  }
  const [count, megabytes] = [Number(values.references), Number(values.megabytes)];
  if (count > 0) {
    const items = await makeReferences(count, megabytes);
    await measure(`${count} references of ${megabytes} MB`, items, { url, key });
  }
} finally {
  service.kill("SIGTERM");
  await once(service, "close");
  await rm(root, { recursive: true, force: true });
}
const ok = results.every((result) => result.ok);
process.stdout.write(`${JSON.stringify({ ok, results })}\n`);
process.exitCode = ok ? 0 : 1;

async function measure(name, items, { url, key }) {
  const dir = await mkdtemp(join(root, "run-"));
  const input = join(root, `${name.replaceAll(" ", "-")}.jsonl`);
  await writeFile(input, items.map((item) => `${JSON.stringify(item)}\n`).join(""));
  const peakFile = join(root, "peak");
  const own = values.embedded ? {} : { IMGBATCH_BASE_URL: url, IMGBATCH_API_KEY: key };
  const env = { ...process.env, ...own, PEAK_FILE: peakFile };
  const args = [
    "--import",
    WATCH,
    join(values.root, "bin/imgbatch.mjs"),
    "submit",
    input,
    "-o",
    join(dir, "out"),
    "--json",
    ...(values.embedded ? ["--data", join(dir, "data")] : []),
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
  const ok = code === 0 && images === items.length && megabytes < Number(values.limit);
  results.push({ name, ok, code, images, seconds, megabytes, serviceMegabytes, stdoutBytes: bytes });
  process.stderr.write(
    `${name}: ${images} images in ${seconds.toFixed(1)} s, ${megabytes} MB (service: ${serviceMegabytes} MB)\n`,
  );
  await rm(dir, { recursive: true, force: true });
}

/** Noise, which nothing makes smaller. */
async function makeReferences(count, megabytes) {
  const folder = join(root, "references");
  await mkdir(folder);
  const side = Math.floor(Math.sqrt((megabytes * 1e6) / 3));
  const noise = Buffer.alloc(side * side * 3);
  const items = [];
  for (let i = 0; i < count; i++) {
    randomFillSync(noise);
    const path = join(folder, `${i}.png`);
    const raw = { width: side, height: side, channels: 3 };
    await sharp(noise, { raw }).png({ compressionLevel: 0 }).toFile(path);
    items.push({ prompt: `like this one, ${i}`, reference_images: [path] });
  }
  return items;
}
