import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { median, timed } from "./measure.mjs";
import { startQuickService } from "./start-quick-service.mjs";

const MODEL = "vendorx-3.1-flash-image";
const ROUNDS = 5;
const READS = 2000;
const CONNECTIONS = 20;
const SUBMISSIONS = 40;
const TABLES = ["batches", "batch_events", "items"];
/** Of Linux, in which it tells the time of a process. */
const TICK_MS = 10;
const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });

/**
 * Submissions against one transaction with the same rows, and reads against `node:http` with the same answer. Reads are
 * compared by the CPU time of the two processes, which decides how many a second one thread can answer.
 */
export async function measureRequests() {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const [slow, quick] = [join(data, "slow"), join(data, "quick")];
  try {
    const submissions = await withService(slow, 3_600_000, (service) => measureSubmissions(service, data));
    return [...submissions, ...(await withService(quick, 0, measureReads))];
  } finally {
    await rm(data, { recursive: true, force: true });
  }
}

async function withService(data, latencyMs, work) {
  const service = await startQuickService(data, latencyMs);
  try {
    return await work({ ...service, data });
  } finally {
    await service.stop();
  }
}

async function measureSubmissions(service, directory) {
  const results = [];
  for (const [count, goal] of [
    [200, 2],
    [10, 2.5],
    [1, 3],
  ]) {
    const insert = sameRows(service, join(directory, `raw-${count}.db`), await submit(service, count));
    const [own, raw] = [[], []];
    for (let round = 0; round < SUBMISSIONS; round++) {
      own.push(await timed(() => submit(service, count)));
      raw.push(await timed(async () => insert(round)));
    }
    results.push({
      name: `a submission of ${count} against one transaction with its rows`,
      value: median(own) / median(raw),
      goal: { atMost: goal },
      facts: { submission: `${median(own).toFixed(2)} ms`, transaction: `${median(raw).toFixed(2)} ms` },
    });
  }
  return results;
}

/** Copies the database of a service. Returns what inserts the rows of a batch there again, under a new id. */
function sameRows({ data }, file, id) {
  const from = new Sqlite(join(data, "imgbatch.db"), { readonly: true });
  from.prepare("VACUUM INTO ?").run(file);
  from.close();
  const to = new Sqlite(file);
  for (const mode of ["journal_mode = WAL", "synchronous = FULL"]) to.pragma(mode);
  const inserts = TABLES.map((table) => {
    const own = table === "batches" ? "id" : "batch_id";
    const rows = to.prepare(`SELECT * FROM ${table} WHERE ${own} = ?`).all(id);
    const counter = table === "items" ? "id" : "seq";
    const columns = Object.keys(rows[0]).filter((name) => name !== counter);
    const places = columns.map(() => "?").join();
    const insert = to.prepare(`INSERT INTO ${table} (${columns.join()}) VALUES (${places})`);
    return (round) => {
      for (const row of rows) {
        insert.run(...columns.map((name) => (name === own ? `${id}-${round}` : row[name])));
      }
    };
  });
  return to.transaction((round) => {
    for (const insert of inserts) insert(round);
  });
}

async function measureReads(service) {
  const id = await submit(service, 100);
  const batch = `/v1/images/batches/${id}`;
  while (JSON.parse(await get(service, batch)).status !== "completed");
  return [
    await measureRead(service, "the status of a batch", batch, 0.2),
    await measureRead(service, "a page of 100 items", `${batch}/items?limit=100`, 0.1),
  ];
}

async function measureRead(service, what, path, goal) {
  const bare = spawn(
    process.execPath,
    [join(import.meta.dirname, "bare-server.mjs"), await get(service, path)],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  try {
    const [url] = await once(bare.stdout, "data");
    const other = { url: String(url).trim(), key: service.key, pid: bare.pid };
    const [own, raw] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      own.push(await cpuOfReads(service, path));
      raw.push(await cpuOfReads(other, path));
    }
    return {
      name: `${what} against a bare answer`,
      value: median(raw) / median(own),
      goal: { atLeast: goal },
      facts: { own: `${median(own).toFixed(0)} us of CPU`, bare: `${median(raw).toFixed(0)} us of CPU` },
    };
  } finally {
    bare.kill();
  }
}

/** The CPU time of one answer, in microseconds. */
async function cpuOfReads(server, path) {
  const before = cpuMs(server.pid);
  let left = READS;
  const reader = async () => {
    while (left-- > 0) await get(server, path);
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, reader));
  return ((cpuMs(server.pid) - before) * 1000) / READS;
}

function cpuMs(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

async function submit(service, count) {
  const items = Array.from({ length: count }, (_, i) => ({
    prompt: `picture ${i} of a red fox in the snow`,
  }));
  return JSON.parse(
    await send(service, "POST", "/v1/images/batches", JSON.stringify({ model: MODEL, items })),
  ).id;
}

const get = (server, path) => send(server, "GET", path);

function send({ url, key }, method, path, body) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  return new Promise((resolve, reject) => {
    const sent = request(url + path, { method, headers, agent }, async (answer) => {
      const pieces = await answer.toArray();
      const text = Buffer.concat(pieces).toString();
      if (answer.statusCode === 200) resolve(text);
      else reject(new Error(text));
    });
    sent.on("error", reject);
    sent.end(body);
  });
}
