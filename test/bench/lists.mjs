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

/** How much longer a list takes among a million batches of one key than among a thousand. */
export async function measureLists() {
  const few = await measureAmong(FEW);
  const many = await measureAmong(MANY);
  return Object.entries(REQUESTS).flatMap(([name, { isSearch }]) => {
    const [base, own] = [few[name], many[name]];
    const facts = { times: `${base.ms.toFixed(1)} and ${own.ms.toFixed(1)} ms` };
    const among = `${name} among a million batches`;
    return [
      // A search that no index answers takes longer, a little at a time.
      ...(isSearch
        ? []
        : [{ name: `${among} against a thousand`, value: own.ms / base.ms, goal: { atMost: 1.2 }, facts }]),
      { name: `${among}: the wait of others`, value: own.waitMs, unit: "ms", goal: { atMost: 20 }, facts },
    ];
  });
}

/** The quickest answer to each query, and the longest that another request waited meanwhile, at its best. */
async function measureAmong(count) {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  try {
    await prepare(data, count);
    const { url, key, stop } = await startQuickService(data);
    const headers = { authorization: `Bearer ${key}` };
    const found = {};
    try {
      for (const [name, request] of Object.entries(REQUESTS)) {
        const path = url + request.path(count);
        const best = { ms: Number.POSITIVE_INFINITY, waitMs: Number.POSITIVE_INFINITY };
        for (let round = 0; round < ROUNDS; round++) {
          best.ms = Math.min(best.ms, await timed(() => read(path, headers)));
        }
        for (let round = 0; round < 5; round++) {
          let isDone = false;
          const list = read(path, headers).finally(() => {
            isDone = true;
          });
          let waitMs = 0;
          while (!isDone) waitMs = Math.max(waitMs, await timed(() => read(`${url}/healthz`, {})));
          await list;
          best.waitMs = Math.min(best.waitMs, waitMs);
        }
        found[name] = best;
      }
    } finally {
      await stop();
    }
    return found;
  } finally {
    await rm(data, { recursive: true, force: true });
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
