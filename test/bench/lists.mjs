import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { timed } from "./measure.mjs";
import { startQuickService } from "./start-quick-service.mjs";

const ROUNDS = 21;
const FEW = 1000;
const MANY = 1_000_000;

/** How much longer a list takes among a million batches of one key than among a thousand. */
export async function measureLists() {
  const few = await measureAmong(FEW);
  const many = await measureAmong(MANY);
  const both = (name) => `${few[name].ms.toFixed(1)} and ${many[name].ms.toFixed(1)} ms`;
  return {
    name: "a list among a million batches against a thousand, none downloaded",
    ratio: many["downloaded=true"].ms / few["downloaded=true"].ms,
    goal: "at most 1.2",
    facts: {
      "the first page": both(""),
      "downloaded=true": both("downloaded=true"),
      "downloaded=false": both("downloaded=false"),
      "a name that none has": `${both("task_name=zzz")}; others wait ${many["task_name=zzz"].waitMs.toFixed(1)} ms`,
      "an offset of half": `${both("cursor=half")}; others wait ${many["cursor=half"].waitMs.toFixed(1)} ms`,
    },
  };
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
      for (const query of ["", "downloaded=true", "downloaded=false", "task_name=zzz", "cursor=half"]) {
        const path = `${url}/v1/images/batches?${query.replace("half", String(count / 2))}`;
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
        found[query] = best;
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
  return JSON.parse(text);
}

/** Makes one batch, and copies of it in the database. */
async function prepare(data, count) {
  const { url, key, stop } = await startQuickService(data);
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const body = JSON.stringify({ model: "vendorx-3.1-flash-image", items: [{ prompt: "a fox" }] });
  const answer = await fetch(`${url}/v1/images/batches`, { method: "POST", headers, body });
  const { id } = await answer.json();
  while ((await read(`${url}/v1/images/batches/${id}`, headers)).status !== "completed");
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
