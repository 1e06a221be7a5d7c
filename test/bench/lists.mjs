import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { timed } from "./measure.mjs";
import { startQuickService } from "./start-quick-service.mjs";

const ROUNDS = 21;
const FEW = 1000;
const MANY = 1_000_000;

const FIRST_PAGE = "/v1/images/batches";
/** No index leads to a name, so the service looks for it in small parts. */
const NO_SUCH_NAME = "/v1/images/batches?task_name=zzz";

/** The first page among a million batches of one key against a thousand, and what a search among them means for others. */
export async function measureLists() {
  const services = [];
  try {
    for (const count of [FEW, MANY]) services.push(await startAmong(count));
    const bests = services.map(() => Number.POSITIVE_INFINITY);
    for (let round = 0; round < ROUNDS; round++) {
      for (const [at, { url, headers }] of services.entries())
        bests[at] = Math.min(bests[at], await timed(() => read(url + FIRST_PAGE, headers)));
    }
    const [base, own] = bests;
    const { url, headers } = services[1];
    return [
      {
        name: "the first page among a million batches against a thousand",
        value: own / base,
        goal: { atMost: 1.5 },
        facts: { times: `${base.toFixed(1)} and ${own.toFixed(1)} ms` },
      },
      {
        name: "the wait of others while a name is looked for among a million batches",
        value: await waitOfOthers(url, url + NO_SUCH_NAME, headers),
        unit: "ms",
        goal: { atMost: 50 },
      },
    ];
  } finally {
    for (const { stop } of services) await stop();
  }
}

/** The longest that another request waits during one for `list`, at its best. */
async function waitOfOthers(url, list, headers) {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 5; round++) {
    let isDone = false;
    const reading = read(list, headers).finally(() => {
      isDone = true;
    });
    let waitMs = 0;
    while (!isDone) waitMs = Math.max(waitMs, await timed(() => read(`${url}/healthz`, {})));
    await reading;
    best = Math.min(best, waitMs);
  }
  return best;
}

/** A service with `count` batches of one key. `stop` removes its data, too. */
async function startAmong(count) {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const remove = () => rm(data, { recursive: true, force: true });
  try {
    await prepare(data, count);
    const { url, key, stop } = await startQuickService(data);
    return { count, url, headers: { authorization: `Bearer ${key}` }, stop: () => stop().finally(remove) };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function read(url, headers) {
  const answer = await fetch(url, { headers });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text;
}

/** Makes one batch, and copies of it in the database. */
async function prepare(data, count) {
  const { url, key, stop } = await startQuickService(data);
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const body = JSON.stringify({ model: "vendorx-3.1-flash-image", items: [{ prompt: "a fox" }] });
  const answer = await fetch(`${url}/v1/images/batches`, { method: "POST", headers, body });
  const { id } = await answer.json();
  while (JSON.parse(await read(`${url}/v1/images/batches/${id}`, headers)).status !== "completed");
  await stop();
  const db = new Sqlite(join(data, "imgbatch.db"));
  const names = db.prepare("SELECT name FROM pragma_table_info('batches') WHERE name <> 'seq'").pluck().all();
  const changed = { id: "'copy_' || n", created_at_ms: "created_at_ms + n" };
  db.prepare(
    `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${count - 1})
     INSERT INTO batches (${names}) SELECT ${names.map((name) => changed[name] ?? name)}
     FROM numbers, (SELECT * FROM batches WHERE id = ?)`,
  ).run(id);
  db.pragma("wal_checkpoint(TRUNCATE)");
  db.close();
}
