import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { bindToCore } from "./core.mjs";
import { median, p99, timed } from "./measure.mjs";
import { startQuickService } from "./start-quick-service.mjs";

const MODEL = "vendorx-3.1-flash-image";
const ROUNDS = 5;
const READS = 2000;
const CONNECTIONS = 20;
/** The first requests of each size, which the engine has not compiled yet, are not measured. */
const WARM_UP = 40;
const SUBMISSIONS = 120;
const TABLES = ["batches", "batch_events", "items"];
const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });

/**
 * Submissions against one transaction with the same rows, and reads against `node:http` with the same answer. Submissions
 * and transactions take turns: 40 of each size go before the 120 that are measured. The service has one core, and the
 * client with the transactions has the other. Reads are compared by the CPU time of the two processes, which decides how
 * many a second one thread can answer.
 */
export async function measureRequests() {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  try {
    return [
      ...(await measureSubmissions(data)),
      ...(await withService(join(data, "quick"), 0, measureReads)),
    ];
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

/** See `measureRequests`; `data` is an empty directory. */
export async function measureSubmissions(data) {
  return withService(join(data, "slow"), 3_600_000, async (service) => {
    bindToCore(service.pid, 0);
    const release = bindToCore(process.pid, 1);
    try {
      return await submitAll(service, data);
    } finally {
      release();
    }
  });
}

async function submitAll(service, directory) {
  const results = [];
  for (const [count, goal] of [
    [200, 2],
    [10, 2.5],
    [1, 3],
  ]) {
    const insert = sameRows(service, join(directory, `raw-${count}.db`), await submit(service, count));
    const [own, raw] = [[], []];
    for (let round = -WARM_UP; round < SUBMISSIONS; round++) {
      const [ownMs, rawMs] = [
        await timed(() => submit(service, count)),
        await timed(async () => insert(round)),
      ];
      if (round < 0) continue;
      own.push(ownMs);
      raw.push(rawMs);
    }
    const name = `a submission of ${count} against one transaction with its rows`;
    const facts = (of) => ({
      submission: `${of(own).toFixed(2)} ms`,
      transaction: `${of(raw).toFixed(2)} ms`,
    });
    results.push(
      { name, value: median(own) / median(raw), goal: { atMost: goal }, facts: facts(median) },
      {
        name: `${name}, slowest of 100`,
        value: p99(own) / p99(raw),
        goal: { atMost: 1.5 },
        facts: facts(p99),
      },
    );
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
    ...(await measureRead(service, "the status of a batch", batch, 0.2)),
    ...(await measureRead(service, "a page of 100 items", `${batch}/items?limit=100`, 0.1)),
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
      own.push(await costOfReads(service, path));
      raw.push(await costOfReads(other, path));
    }
    const best = (rounds, cost) => Math.min(...rounds.map(cost));
    const row = (name, cost, unit) => ({
      name,
      facts: {
        own: `${best(own, cost).toFixed(1)} ${unit}`,
        bare: `${best(raw, cost).toFixed(1)} ${unit}`,
      },
    });
    const [cpu, slow] = [({ cpuUs }) => cpuUs, ({ p99Ms }) => p99Ms];
    return [
      {
        ...row(`${what} against a bare answer`, cpu, "us of CPU"),
        value: best(raw, cpu) / best(own, cpu),
        goal: { atLeast: goal },
      },
      {
        ...row(`${what}, slowest of 100 at ${CONNECTIONS} connections, against a bare answer`, slow, "ms"),
        value: best(own, slow) / best(raw, slow),
        goal: { atMost: 3 },
      },
    ];
  } finally {
    bare.kill();
  }
}

/** The CPU time of one answer, and how long the slowest of a hundred take. */
async function costOfReads(server, path) {
  const before = cpuNs(server.pid);
  const times = [];
  let left = READS;
  const reader = async () => {
    while (left-- > 0) times.push(await timed(() => get(server, path)));
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, reader));
  return { cpuUs: (cpuNs(server.pid) - before) / 1000 / READS, p99Ms: p99(times) };
}

/** The CPU time of all threads of a process, in nanoseconds. */
function cpuNs(pid) {
  const threads = readdirSync(`/proc/${pid}/task`);
  return threads.reduce((sum, id) => {
    const [ns] = readFileSync(`/proc/${pid}/task/${id}/schedstat`, "utf8").split(" ");
    return sum + Number(ns);
  }, 0);
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
