import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BIN, cleanEnvironment, imgbatch, startNode } from "../support/processes.ts";
import { sha256 } from "./customer.ts";
import { hasStrace, injected } from "./killed-service.ts";
import { seeded } from "./random.ts";

/** The steps of a run: what makes files durable, and what goes out to the service. Each is counted by itself. */
const STEPS = { fsync: 12, rename: 8, unlink: 4, connect: 4, writev: 4 };
/** Batches of a run: two with two items, one of the items with two images. */
const BATCHES = 2;
const IMAGES = 4;
const ARGUMENTS = ["submit", "p.jsonl", "--json", "--interval", "50ms", "--max-batch", "2"];
const VARIANTS = ["same", "same", "elsewhere", "new"] as const;

interface Place {
  dir: string;
  name: string;
}

/**
 * Kills `imgbatch submit` at random moments and at its Nth call of a kind (which needs strace), runs the same command again to
 * its end, and returns what did not hold: as many batches and holds as the run has batches, every image on disk and
 * verified, nothing half-written left.
 */
export async function killSubmits(
  root: string,
  { random: randomKills, traced, seed }: { random: number; traced: number; seed: number },
): Promise<{ killed: number; problems: string[] }> {
  const random = seeded(seed, "submit");
  const problems: string[] = [];
  let [killed, runs] = [0, 0];
  const data = join(root, "data");
  const simulated = ["--simulate", "latency=60ms,seed=1", "--log-level", "error"];
  const service = startNode([BIN, "serve", "--port", "0", "--data", data, ...simulated]);
  const { url } = JSON.parse(await service.line());
  const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
  // One thread for all work on files, so that counting its operations makes sense.
  const variables = { IMGBATCH_BASE_URL: url, IMGBATCH_API_KEY: key, UV_THREADPOOL_SIZE: "1" };
  const env = cleanEnvironment(variables);

  const newPlace = async (): Promise<Place> => {
    const name = `run-${runs++}`;
    const dir = join(root, name);
    await mkdir(dir);
    const prompt = (what: string) => `${what} of ${name}, seed ${seed}`;
    const lines = [
      { prompt: prompt("a") },
      { prompt: prompt("b") },
      { prompt: prompt("c"), output_count: 2 },
    ];
    await writeFile(join(dir, "p.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
    return { dir, name };
  };
  const commandOf = ({ name }: Place, more: readonly string[]) => [
    BIN,
    ...ARGUMENTS,
    "--name",
    name,
    ...more,
  ];
  /** Runs the command under strace, or kills it after so many milliseconds. */
  const kill = async (place: Place, how: string[] | number, more: readonly string[]) => {
    const strace = typeof how === "number" ? [] : ["strace", "-f", "-qq", "-o", "/dev/null", ...how];
    const [program = "", ...args] = [...strace, process.execPath, ...commandOf(place, more)];
    const child = spawn(program, args, { cwd: place.dir, env, stdio: "ignore" });
    const timer = typeof how === "number" ? setTimeout(() => child.kill("SIGKILL"), how) : undefined;
    const [code, signal] = await once(child, "close");
    clearTimeout(timer);
    if (signal === "SIGKILL" || code === 137) killed++;
    return signal === "SIGKILL" || code === 137;
  };
  const finish = async (place: Place, more: readonly string[]) => {
    const end = await imgbatch(commandOf(place, more).slice(1), { cwd: place.dir, env });
    for (const problem of await problemsOf(place, end)) problems.push(`${place.name}: ${problem}`);
  };

  const startedMs = performance.now();
  await finish(await newPlace(), []);
  const usualMs = performance.now() - startedMs;
  for (let n = 0; n < randomKills; n++) {
    const variant = VARIANTS[n % VARIANTS.length];
    const place = await newPlace();
    const more = variant === "new" ? ["--new"] : [];
    for (let kills = random.whole(1, 2); kills > 0; kills--) {
      const isKilled = await kill(place, usualMs * (0.2 + random.next() * 0.9), more);
      // A run that is over with `--new` would be paid anew, and rightly.
      if (!isKilled || (await isFinished(place))) break;
      if (variant === "elsewhere") await rm(join(place.dir, "p-images"), { recursive: true, force: true });
    }
    await finish(place, (await isFinished(place)) ? [] : more);
  }
  for (let n = 0; n < (hasStrace ? traced : 0); n++) {
    const place = await newPlace();
    const [call, most] = random.pick(Object.entries(STEPS));
    const when = traced === 1 ? 1 : random.whole(1, most);
    await kill(place, injected({ thread: "main", call, when }), []);
    await finish(place, []);
  }
  service.child.kill("SIGTERM");
  await service.exited;
  problems.push(...(await moneyProblems(data, runs * BATCHES)));
  return { killed, problems };
}

async function isFinished({ dir }: Place): Promise<boolean> {
  const state = await readFile(join(dir, "p-images/imgbatch.json"), "utf8").catch(() => null);
  return state !== null && JSON.parse(state).finished_at !== null;
}

/** What is wrong with a run after its command has ended by itself. */
async function problemsOf(
  { dir }: Place,
  { code, stdout, stderr }: { code: number | null; stdout: string; stderr: string },
): Promise<string[]> {
  if (code !== 0) return [`exit ${code}: ${stderr.trim().split("\n").slice(-3).join(" | ")}`];
  const problems: string[] = [];
  const { counts } = JSON.parse(stdout);
  if (counts?.success !== IMAGES) problems.push(`counts ${JSON.stringify(counts)}`);
  const at = join(dir, "p-images");
  const text = await readFile(join(at, "results.jsonl"), "utf8");
  const lines: { batch_id: string; files: { path: string; sha256: string }[] }[] = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  if (new Set(lines.map((line) => line.batch_id)).size !== BATCHES)
    problems.push("not the batches of one run");
  const files = lines.flatMap((line) => line.files);
  if (files.length !== IMAGES) problems.push(`${files.length} files`);
  for (const { path, sha256: hash } of files) {
    const bytes = existsSync(join(at, path)) ? await readFile(join(at, path)) : "";
    if (sha256(bytes) !== hash) problems.push(`${path} is not what the results say`);
  }
  const expected = [...files.map((file) => file.path), "imgbatch.json", "input.jsonl", "results.jsonl"];
  // The contact sheet is no part of what this is about.
  const all = await readdir(at, { recursive: true });
  const found = all.filter((each) => each !== "images" && each !== "index.html");
  if (found.sort().join() !== expected.sort().join()) problems.push(`files ${found.join(" ")}`);
  return problems;
}

/** One hold and one capture for each batch, and the books of the service in order. */
async function moneyProblems(data: string, batches: number): Promise<string[]> {
  const problems: string[] = [];
  const ledger = await imgbatch(["admin", "ledger", "--json", "--data", data]);
  const { entries } = JSON.parse(ledger.stdout) as { entries: { kind: string }[] };
  for (const kind of ["hold", "capture"]) {
    const found = entries.filter((entry) => entry.kind === kind).length;
    if (found !== batches) problems.push(`${found} entries of kind ${kind} for ${batches} batches`);
  }
  const check = await imgbatch(["admin", "check", "--data", data]);
  if (check.code !== 0) problems.push(`admin check: ${check.stdout}${check.stderr}`);
  return problems;
}
