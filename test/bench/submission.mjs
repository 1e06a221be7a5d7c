import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import Sqlite from "better-sqlite3";

const BIN = fileURLToPath(new URL("../../bin/imgbatch.cjs", import.meta.url));
const ROUNDS = 3;
const PROMPTS = 1500;
const PROMPT_CHARS = 7900;
const BATCH = 200;
const STEADY_MS = 10_000;
const WORDS = "red fox snow blue mountains night stars city glass towers rain old tree lake autumn".split(
  " ",
);

/** Images per second of `submit` while it still sends long prompts to its own service, against after that. */
export async function measureSubmission() {
  const [during, after] = [
    { images: 0, ms: 0 },
    { images: 0, ms: 0 },
  ];
  for (let round = 0; round < ROUNDS; round++) {
    const { first, all, end } = await run();
    add(during, first, all);
    add(after, all, end);
  }
  const perSecond = ({ images, ms }) => (images / ms) * 1000;
  return {
    name: "images per second while long prompts are submitted against after that",
    value: perSecond(during) / perSecond(after),
    goal: { atLeast: 0.8 },
    facts: {
      during: `${perSecond(during).toFixed(1)} images/s, for ${(during.ms / ROUNDS / 1000).toFixed(1)} s`,
      after: `${perSecond(after).toFixed(1)} images/s`,
    },
  };
}

function add(sum, from, to) {
  sum.images += to.images - from.images;
  sum.ms += to.ms - from.ms;
}

/** Returns when the first batch and all batches were there, and a moment after that, each with the images made by then. */
async function run() {
  const root = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const data = join(root, "data");
  await writeFile(join(root, "prompts.txt"), Array.from({ length: PROMPTS }, (_, i) => prompt(i)).join("\n"));
  const child = spawn(process.execPath, [BIN, "submit", "prompts.txt", "--no-gallery"], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: root, IMGBATCH_DATA: data },
    stdio: "ignore",
  });
  const exited = once(child, "exit");
  let database;
  try {
    const seen = {};
    while (seen.end === undefined) {
      await sleep(100);
      if (child.exitCode !== null) throw new Error(`submit ended with exit ${child.exitCode}`);
      database ??= opened(join(data, "imgbatch.db"));
      const counts = database && countsOf(database);
      if (!counts) continue;
      const moment = { ms: performance.now(), images: counts.images };
      if (counts.batches > 0) seen.first ??= moment;
      if (counts.batches === Math.ceil(PROMPTS / BATCH)) seen.all ??= moment;
      if (seen.all && (moment.ms - seen.all.ms >= STEADY_MS || counts.images === PROMPTS)) seen.end = moment;
    }
    return seen;
  } finally {
    database?.close();
    child.kill("SIGKILL");
    await exited;
    await rm(root, { recursive: true, force: true });
  }
}

function prompt(index) {
  let text = `no. ${index}`;
  for (let at = index; text.length < PROMPT_CHARS; at = (at * 48271 + 11) % 2147483647)
    text += ` ${WORDS[at % WORDS.length]}`;
  return text;
}

/** The database, once it is there with its tables. */
function opened(path) {
  try {
    const database = new Sqlite(path, { readonly: true });
    countsOf(database);
    return database;
  } catch {
    return undefined;
  }
}

function countsOf(database) {
  const query =
    "select (select count(*) from batches) as batches, (select count(*) from items where status = 'success') as images";
  return database.prepare(query).get();
}
