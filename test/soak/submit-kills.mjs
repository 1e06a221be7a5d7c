// Kills the real `imgbatch submit` at random moments, and at chosen file operations, runs the same command again, and
// checks what must hold: as many batches and holds as the run has batches, every image on disk and verified, nothing
// half-written left. Against a real `imgbatch serve` in a process of its own.
//   node test/soak/submit-kills.mjs [--kills N] [--random N] [--traced N] [--seed N] [--json]
// `--random`: kills at random moments, `--traced`: kills at the Nth sync or rename (needs strace), `--kills`: both,
// half each. `--traced all` walks through every operation of a run. Ends with 1 when anything did not hold.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const BIN = resolve(import.meta.dirname, "../../bin/imgbatch.cjs");
/** The steps of a run: what makes files durable, and what goes out to the service. Each is counted by itself. */
const OPERATIONS = ["fsync", "rename", "unlink", "connect", "writev"];
/** Counting the operations of a run takes longer than this many kills. */
const FEW = 3;
/** Batches of a run: two with two items, one of the items with two images. */
const BATCHES = 2;
const IMAGES = 4;
const ARGUMENTS = ["submit", "p.jsonl", "--json", "--interval", "50ms", "--max-batch", "2"];
const VARIANTS = ["same", "same", "elsewhere", "new"];

const { values } = parseArgs({
  options: {
    kills: { type: "string" },
    random: { type: "string" },
    traced: { type: "string" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    json: { type: "boolean", default: false },
  },
});
const half = Math.ceil(Number(values.kills ?? "40") / 2);
const given = values.kills === undefined && (values.random !== undefined || values.traced !== undefined);
const randomKills = Number(values.random ?? (given ? 0 : half));
const traced = values.traced ?? (given ? "0" : String(half));
const seed = Number(values.seed);

const root = mkdtempSync(join(tmpdir(), "imgbatch-kills-"));
const problems = [];
const tally = { seed, random: 0, traced: 0, missed: 0, runs: 0, batches: 0, strace: true };
const say = (line) => process.stderr.write(`${line}\n`);

let state = seed >>> 0;
/** A number from 0 to below 1, the same ones for the same seed. */
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), state | 1);
  t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
}

const { IMGBATCH_BASE_URL: _url, IMGBATCH_API_KEY: _key, IMGBATCH_DATA: _data, ...environment } = process.env;
const data = join(root, "data");
const service = await startService();
try {
  await calibrateAndKill();
} finally {
  service.child.kill("SIGTERM");
  await service.ended;
}
checkMoney();
rmSync(root, { recursive: true, force: true });
if (values.json) process.stdout.write(`${JSON.stringify({ ...tally, problems })}\n`);
else say(`${JSON.stringify(tally)}\n${problems.length === 0 ? "all held" : problems.join("\n")}`);
process.exitCode = problems.length === 0 ? 0 : 1;

async function calibrateAndKill() {
  const calm = workplace();
  const startedMs = performance.now();
  const first = await submit(calm, []).ended;
  const usualMs = performance.now() - startedMs;
  check(calm, first);
  for (let n = 0; n < randomKills; n++) await randomRound(n, usualMs);
  if (traced !== "0") await tracedRounds();
}

/** One or two kills at random moments, then the same command to its end. */
async function randomRound(n, usualMs) {
  const variant = VARIANTS[n % VARIANTS.length];
  const place = workplace(variant);
  const more = variant === "new" ? ["--new"] : [];
  for (let kills = 1 + Math.floor(random() * 2); kills > 0; kills--) {
    const running = submit(place, more);
    const timer = setTimeout(() => running.child.kill("SIGKILL"), usualMs * (0.2 + random() * 0.9));
    const { signal } = await running.ended;
    clearTimeout(timer);
    if (signal === "SIGKILL") tally.random++;
    else tally.missed++;
    // A run that is over with `--new` would be paid anew, and rightly.
    if (signal === null || isFinished(place)) break;
    if (variant === "elsewhere") rmSync(join(place.dir, "p-images"), { recursive: true, force: true });
  }
  check(place, await submit(place, isFinished(place) ? [] : more).ended);
}

async function tracedRounds() {
  if (spawnSync("strace", ["-V"]).error !== undefined) {
    tally.strace = false;
    say("skipped: no strace here, so no kill at each sync and rename");
    return;
  }
  const steps = Number(traced) < FEW ? guessedSteps() : await listSteps();
  if (traced !== "all") {
    const chosen = Array.from({ length: Number(traced) }, () => steps[Math.floor(random() * steps.length)]);
    steps.splice(0, steps.length, ...chosen);
  }
  for (const { operation, when } of steps) {
    const place = workplace(`${operation} ${when}`);
    const inject = `inject=${operation}:signal=SIGKILL:when=${when}`;
    const strace = ["-f", "-qq", "-o", "/dev/null", "-e", `trace=${operation}`, "-e", inject];
    const { signal } = await submit(place, [], strace).ended;
    if (signal === null) tally.missed++;
    else tally.traced++;
    check(place, await submit(place, []).ended);
  }
}

/** A short run guesses: a step that does not come is no kill. */
function guessedSteps() {
  const counts = (operation) => (["connect", "writev"].includes(operation) ? [1, 2] : [1, 2, 4]);
  return OPERATIONS.flatMap((operation) => counts(operation).map((when) => ({ operation, when })));
}

/** Every step of a calm run, as the number that it has among those of its kind and thread. */
async function listSteps() {
  const place = workplace();
  const log = join(place.dir, "strace.log");
  await submit(place, [], ["-f", "-qq", "-o", log, "-e", `trace=${OPERATIONS.join(",")}`]).ended;
  const counts = new Map();
  for (const [, thread, operation] of readFileSync(log, "utf8").matchAll(/^(\d+) +([a-z]+)\(/gm)) {
    const kind = `${thread} ${operation}`;
    counts.set(kind, { operation, count: (counts.get(kind)?.count ?? 0) + 1 });
  }
  return OPERATIONS.flatMap((operation) => {
    const most = Math.max(
      0,
      ...[...counts.values()].filter((each) => each.operation === operation).map((each) => each.count),
    );
    return Array.from({ length: most }, (_, i) => ({ operation, when: i + 1 }));
  });
}

function workplace(variant = "calm") {
  const number = tally.runs++;
  tally.batches += BATCHES;
  const dir = join(root, `run-${number}`);
  mkdirSync(dir);
  const prompt = (what) => `${what} of run ${number}, seed ${seed}`;
  const lines = [{ prompt: prompt("a") }, { prompt: prompt("b") }, { prompt: prompt("c"), output_count: 2 }];
  writeFileSync(join(dir, "p.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
  return { dir, name: `run-${number}`, variant };
}

function submit({ dir, name }, more, strace = null) {
  const command = [process.execPath, BIN, ...ARGUMENTS, "--name", name, ...more];
  const [program, ...args] = strace === null ? command : ["strace", ...strace, ...command];
  const env = {
    ...environment,
    IMGBATCH_BASE_URL: service.url,
    IMGBATCH_API_KEY: service.key,
    NO_COLOR: "1",
    // One thread for all work on files, so that counting its operations makes sense.
    UV_THREADPOOL_SIZE: "1",
  };
  return start(program, args, { cwd: dir, env });
}

function start(program, args, options) {
  const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  const text = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].on("data", (chunk) => (text[name] += chunk));
  const ended = new Promise((done) => child.on("close", (code, signal) => done({ code, signal, ...text })));
  return { child, ended };
}

async function startService() {
  const args = [
    BIN,
    "serve",
    "--port",
    "0",
    "--data",
    data,
    "--simulate",
    "latency=60ms,seed=1",
    "--log-level",
    "error",
  ];
  const running = start(process.execPath, args, { cwd: root, env: environment });
  const [line] = await new Promise((done) =>
    createInterface(running.child.stdout).once("line", (...all) => done(all)),
  );
  const { api_key: key } = JSON.parse(readFileSync(join(data, "credentials.json"), "utf8"));
  return { ...running, url: JSON.parse(line).url, key };
}

function isFinished({ dir }) {
  try {
    return JSON.parse(readFileSync(join(dir, "p-images/imgbatch.json"), "utf8")).finished_at !== null;
  } catch {
    return false;
  }
}

/** Checks what must be true of a run after its command has ended by itself. */
function check({ dir, name, variant }, { code, stdout, stderr }) {
  const wrong = (what) => problems.push(`${name} (${variant}): ${what}`);
  if (code !== 0) return wrong(`exit ${code}: ${stderr.trim().split("\n").slice(-3).join(" | ")}`);
  const document = JSON.parse(stdout);
  if (document.counts?.success !== IMAGES) wrong(`counts ${JSON.stringify(document.counts)}`);
  const at = join(dir, "p-images");
  const lines = readFileSync(join(at, "results.jsonl"), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  if (new Set(lines.map((line) => line.batch_id)).size !== BATCHES) wrong("not the batches of one run");
  const files = lines.flatMap((line) => line.files);
  if (files.length !== IMAGES) wrong(`${files.length} files`);
  for (const { path, sha256 } of files) {
    const bytes = existsSync(join(at, path)) ? readFileSync(join(at, path)) : Buffer.alloc(0);
    if (createHash("sha256").update(bytes).digest("hex") !== sha256)
      wrong(`${path} is not what the results say`);
  }
  const expected = [...files.map((file) => file.path), "imgbatch.json", "input.jsonl", "results.jsonl"];
  // The contact sheet is no part of what this is about.
  const found = readdirSync(at, { recursive: true }).filter(
    (each) => each !== "images" && each !== "index.html",
  );
  if (found.toSorted().join() !== expected.toSorted().join()) wrong(`files ${found.toSorted().join(" ")}`);
}

/** One hold and one capture for each batch, and the books of the service in order. */
function checkMoney() {
  const admin = (...args) =>
    spawnSync(process.execPath, [BIN, "admin", ...args, "--data", data], {
      encoding: "utf8",
      maxBuffer: 1e9,
    });
  const runState = JSON.parse(admin("ledger", "--json").stdout || "[]");
  const entries = Array.isArray(runState) ? runState : (runState.entries ?? []);
  for (const kind of ["hold", "capture"]) {
    const found = entries.filter((entry) => entry.kind === kind).length;
    if (found !== tally.batches)
      problems.push(`${found} entries of kind ${kind} for ${tally.batches} batches`);
  }
  const books = admin("check");
  if (books.status !== 0) problems.push(`admin check: ${books.stdout}${books.stderr}`);
}
