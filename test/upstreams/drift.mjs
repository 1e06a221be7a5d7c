// Asks a real vendor for its list of models and for one small image, and compares the shapes of its answers with those of the
// upstream that the tests use in its place: what differs, the tests do not know. The same requests go to both, as this program
// sends them. Run with `npm run drift -- --upstream google --max-cost 0.20`; needs a build and the vendor's key, and costs what
// the image costs. Options: --model ID (the cheapest), --base-url URL (the vendor's own). Prints a line for each difference; the
// exit code is 1 when there is one, and 2 when the vendor could not be asked.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { build } from "rolldown";

const ROOT = resolve(import.meta.dirname, "../..");
const CATALOGUE = join(ROOT, "src/providers/catalogue");
const FAKES = join(ROOT, "test/support/upstreams");
/** The upstreams whose stand-in speaks OpenAI's API, and the name of its dialect. */
const DIALECTS = { openai: "openai", openrouter: "openrouter", together: "together", xai: "xai" };

class Unasked extends Error {}

/** Returns what is known of an upstream, and the cheapest of its models that have not ended. */
function knownOf(upstream) {
  const files = readdirSync(CATALOGUE).filter((name) => name.endsWith(".json"));
  const vendors = files.map((name) => JSON.parse(readFileSync(join(CATALOGUE, name), "utf8")));
  const vendor = vendors.find(({ presets }) => Object.hasOwn(presets, upstream ?? ""));
  const isKnown = vendor && (upstream === "google" || upstream in DIALECTS);
  if (!isKnown) throw new Unasked(`--upstream: use google, ${Object.keys(DIALECTS).join(", ")}`);
  const today = new Date().toISOString();
  const priceOf = ({ prices, defaultQuality }) => prices?.["1K"] ?? prices?.[defaultQuality]?.["1K"];
  const [cheapest] = vendor.models
    .filter((model) => priceOf(model) !== undefined && !(model.retires < today))
    .sort((a, b) => priceOf(a) - priceOf(b));
  return { vendor, provider: vendor.presets[upstream].provider, cheapest };
}

/** Passes requests on to an address, and keeps the exchanges. */
async function startTap(origin) {
  const exchanges = [];
  const server = createServer(async (incoming, outgoing) => {
    const { method, url, headers } = incoming;
    const pieces = [];
    for await (const piece of incoming) pieces.push(piece);
    const { host: _h, connection: _c, "content-length": _l, "accept-encoding": _e, ...sent } = headers;
    const request = { method, url, headers: sent, body: Buffer.concat(pieces) };
    try {
      const answer = await ask(origin, request);
      exchanges.push({ request, answer });
      outgoing.writeHead(answer.status, { "content-type": answer.type }).end(answer.body);
    } catch (error) {
      process.stderr.write(`${origin} cannot be reached: ${error.cause?.code ?? error.message}\n`);
      outgoing.writeHead(503).end();
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${server.address().port}`, exchanges, close: () => server.close() };
}

async function ask(origin, { method, url, headers, body }) {
  const answer = await fetch(origin + url, { method, headers, ...(body.length > 0 && { body }) });
  const bytes = Buffer.from(await answer.arrayBuffer());
  return { status: answer.status, type: answer.headers.get("content-type") ?? "", body: bytes };
}

/** Runs this program to its end; its words go to the standard error. Returns its exit code. */
async function imgbatch(args, env) {
  const child = spawn(process.execPath, [join(ROOT, "bin/imgbatch.cjs"), ...args], {
    env,
    stdio: ["ignore", "ignore", "inherit"],
  });
  const [code] = await once(child, "close");
  return code;
}

/** Starts the stand-in of an upstream. It is written in TypeScript, which Node 20 does not read. */
async function startStandIn(upstream, model, directory) {
  const dialect = DIALECTS[upstream];
  const [name, start] = dialect ? ["openai", "startOpenai"] : ["native", "startNative"];
  const load = async (file) => {
    const out = join(directory, `${file}.mjs`);
    await build({
      input: join(FAKES, `${file}.ts`),
      platform: "node",
      external: /^[a-z]/,
      output: { file: out, format: "esm", paths: { sharp: import.meta.resolve("sharp") } },
    });
    return import(pathToFileURL(out).href);
  };
  const fakes = await load(name);
  const own = dialect && { dialect: (await load("openai-dialects")).DIALECTS[dialect] };
  return {
    base: own?.dialect.base ?? "",
    key: dialect ? fakes.OPENAI_KEY : fakes.NATIVE_KEY,
    fake: await fakes[start]({ models: [model], ...own }),
  };
}

/** The fields of a JSON value with their types, as lines: `models[].name string`. */
function shapeOf(value, path = "") {
  if (Array.isArray(value)) return new Set(value.flatMap((each) => [...shapeOf(each, `${path}[]`)]));
  if (typeof value !== "object" || value === null)
    return new Set([`${path} ${value === null ? "null" : typeof value}`]);
  const fields = Object.entries(value);
  return new Set(
    fields.flatMap(([name, each]) => [...shapeOf(each, path === "" ? name : `${path}.${name}`)]),
  );
}

/** What differs between a vendor's answer and that of its stand-in, a line each. */
function differences(theirs, ours) {
  const lines = [];
  const heads = [theirs, ours].map(({ status, type }) => `status ${status}, ${type.split(";")[0]}`);
  if (heads[0] !== heads[1]) lines.push(`~ the vendor: ${heads[0]}; the tests: ${heads[1]}`);
  const [vendor, tests] = [theirs, ours].map(({ body }) => {
    try {
      return shapeOf(JSON.parse(body.toString()));
    } catch {
      return new Set(["no JSON"]);
    }
  });
  for (const line of vendor)
    if (!tests.has(line)) lines.push(`+ ${line} (the vendor has it, the tests have not)`);
  for (const line of tests)
    if (!vendor.has(line)) lines.push(`- ${line} (the tests have it, the vendor has not)`);
  return lines;
}

async function main(directory) {
  const { values: flags } = parseArgs({
    options: {
      upstream: { type: "string" },
      "max-cost": { type: "string" },
      "base-url": { type: "string" },
      model: { type: "string" },
    },
  });
  const { upstream, "max-cost": maxCost } = flags;
  const { vendor, provider, cheapest } = knownOf(upstream);
  if (!process.env[provider.apiKeyEnv])
    throw new Unasked(`set ${provider.apiKeyEnv}: the vendor is asked with it`);
  if (!maxCost) throw new Unasked("--max-cost USD: what the image may cost");
  const model = flags.model ?? cheapest.id;
  const known = vendor.models.find(({ id }) => id === model);
  const { origin, pathname } = new URL(flags["base-url"] ?? provider.baseUrl);
  const path = pathname.replace(/\/$/, "");
  const tap = await startTap(origin);
  const standIn = await startStandIn(upstream, known?.upstreamId ?? model, directory);
  try {
    const config = join(directory, "config.json");
    writeFileSync(config, JSON.stringify({ providers: [{ preset: upstream, baseUrl: tap.url + path }] }));
    const own = ["--config", config, "--data", join(directory, "data"), "-q"];
    // Lists are kept for an hour: this one is to be new.
    const env = { ...process.env, XDG_CACHE_HOME: directory, IMGBATCH_BASE_URL: "" };
    const image = [
      "--model",
      model,
      "--max-cost",
      maxCost,
      "--retries",
      "0",
      "-o",
      join(directory, "image.png"),
    ];
    const codes = [
      ...(vendor.list ? [await imgbatch(["models", "--upstream", upstream, ...own], env)] : []),
      await imgbatch(["generate", "a red circle", "--aspect-ratio", "1:1", ...image, ...own], env),
    ];
    const seen = new Set();
    const lines = [];
    for (const { request, answer } of tap.exchanges) {
      const name = `${request.method} ${request.url.split("?")[0]}`;
      if (seen.has(name)) continue;
      seen.add(name);
      const withKey = Object.entries(request.headers).map(([header, value]) => [
        header,
        value.replace(process.env[provider.apiKeyEnv], standIn.key),
      ]);
      const url = standIn.base + request.url.slice(path.length);
      const ours = await ask(standIn.fake.url, { ...request, url, headers: Object.fromEntries(withKey) });
      lines.push(name, ...differences(answer, ours).map((line) => `  ${line}`));
    }
    const isAsked = tap.exchanges.some(({ request }) => request.method === "POST");
    if (!isAsked) throw new Unasked(`the vendor was not asked for an image (exit code ${codes.at(-1)})`);
    const count = lines.filter((line) => line.startsWith(" ")).length;
    process.stdout.write(`${[...lines, `${count} differences`].join("\n")}\n`);
    return count === 0 && codes.at(-1) === 0 ? 0 : 1;
  } finally {
    tap.close();
    await standIn.fake.close();
  }
}

const directory = mkdtempSync(join(tmpdir(), "imgbatch-drift-"));
try {
  process.exitCode = await main(directory);
} catch (error) {
  if (!(error instanceof Unasked) && error.code?.startsWith("ERR_PARSE_ARGS") !== true) throw error;
  process.stderr.write(`drift: ${error.message}\n`);
  process.exitCode = 2;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
