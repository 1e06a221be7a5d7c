import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { timed } from "./measure.mjs";
import { startQuickService } from "./start-quick-service.mjs";

const ROUNDS = 21;
const FEW = 1000;
const MANY = 1_000_000;

const list = (query) => `/v1/images/batches?${query}`;
/** The path of each request, by the number of batches. Default of `isSearch`: an index leads to the rows alone. */
const REQUESTS = {
  "the first page": { path: () => list("") },
  "those that were downloaded": { path: () => list("downloaded=true") },
  "those that were not": { path: () => list("downloaded=false") },
  "a name that none has": { path: () => list("task_name=zzz"), isSearch: true },
  "an offset of half": { path: (count) => list(`cursor=${count / 2}`), isSearch: true },
  "/metrics": { path: () => "/metrics" },
};

/** How much longer a list takes among a million batches of one key than among a thousand. The two services are asked in turns. */
export async function measureLists() {
  const services = [];
  try {
    for (const count of [FEW, MANY]) services.push(await startAmong(count));
    const rows = [];
    for (const [name, request] of Object.entries(REQUESTS))
      rows.push(...(await rowsOf(name, request, services)));
    return rows;
  } finally {
    for (const { stop } of services) await stop();
  }
}

async function rowsOf(name, { path, isSearch }, services) {
  const bests = services.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [at, service] of services.entries()) {
      const ms = await timed(() => read(service.url + path(service.count), service.headers));
      bests[at] = Math.min(bests[at], ms);
    }
  }
  const [base, own] = bests;
  const facts = { times: `${base.toFixed(1)} and ${own.toFixed(1)} ms` };
  const among = `${name} among a million batches`;
  const many = services[1];
  const value = await waitOfOthers(many.url, many.url + path(many.count), many.headers);
  return [
    // A search that no index answers takes longer, a little at a time.
    ...(isSearch
      ? []
      : [{ name: `${among} against a thousand`, value: own / base, goal: { atMost: 1.2 }, facts }]),
    { name: `${among}: the wait of others`, value, unit: "ms", goal: { atMost: 20 }, facts },
  ];
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
