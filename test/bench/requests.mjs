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
import { sameRows } from "./same-rows.mjs";
import { startQuickService } from "./start-quick-service.mjs";

const MODEL = "vendorx-3.1-flash-image";
const ROUNDS = 5;
const READS = 2000;
const CONNECTIONS = 20;
/** The first requests of each size, which the engine has not compiled yet, are not measured. */
const WARM_UP = 40;
const SUBMISSIONS = 120;
const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });

/**
 * Submissions against one transaction with the same rows, and reads against `node:http` with the same answer. Submissions
 * and transactions take turns: 40 of each size go before the 120 that are measured. The service has one core, and the
 * client with the transactions has the other. A fact of each row is what a bare `node:http` with the same transaction
 * takes, in the place of the service. Reads are compared by the CPU time of the two processes, which decides how
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
    const first = await submit(service, count);
    const { id } = JSON.parse(first);
    const insert = sameRows(copyOf(service, join(directory, `raw-${count}.db`)), id);
    const file = copyOf(service, join(directory, `floor-${count}.db`));
    const floor = await startServer("submission-floor.mjs", file, id, first);
    bindToCore(floor.pid, 0);
    const transaction = async () => insert();
    const [own, raw] = await inTurns(() => submit(service, count), transaction);
    // Not among the others: the service would find its core in the state in which this server leaves it.
    const [bare, beside] = await inTurns(() => submit({ ...service, ...floor }, count), transaction);
    floor.stop();
    const name = `a submission of ${count} against one transaction with its rows`;
    const facts = (of) => ({
      submission: `${of(own).toFixed(2)} ms`,
      transaction: `${of(raw).toFixed(2)} ms`,
      "bare node:http with the transaction": `${of(bare).toFixed(2)} ms, ${(of(bare) / of(beside)).toFixed(2)} of the transaction`,
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

/** Measures works in turns. Returns the times of each, in milliseconds. */
async function inTurns(...works) {
  const times = works.map(() => []);
  for (let round = -WARM_UP; round < SUBMISSIONS; round++) {
    for (const [at, work] of works.entries()) {
      const ms = await timed(work);
      if (round >= 0) times[at].push(ms);
    }
  }
  return times;
}

/** Copies the database of a service. */
function copyOf({ data }, file) {
  const from = new Sqlite(join(data, "imgbatch.db"), { readonly: true });
  from.prepare("VACUUM INTO ?").run(file);
  from.close();
  return file;
}

/** Starts a server of this folder. */
async function startServer(script, ...given) {
  const child = spawn(process.execPath, [join(import.meta.dirname, script), ...given], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [url] = await once(child.stdout, "data");
  return { url: String(url).trim(), pid: child.pid, stop: () => child.kill() };
}

async function measureReads(service) {
  const batch = `/v1/images/batches/${JSON.parse(await submit(service, 100)).id}`;
  while (JSON.parse(await get(service, batch)).status !== "completed");
  return [
    ...(await measureRead(service, "the status of a batch", batch, 0.2)),
    ...(await measureRead(service, "a page of 100 items", `${batch}/items?limit=100`, 0.1)),
  ];
}

async function measureRead(service, what, path, goal) {
  const bare = await startServer("bare-server.mjs", await get(service, path));
  try {
    const [own, raw] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      own.push(await costOfReads(service, path));
      raw.push(await costOfReads({ ...bare, key: service.key }, path));
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
    bare.stop();
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

/** Returns the text of the new batch. */
function submit(service, count) {
  const items = Array.from({ length: count }, (_, i) => ({
    prompt: `picture ${i} of a red fox in the snow`,
  }));
  return send(service, "POST", "/v1/images/batches", JSON.stringify({ model: MODEL, items }));
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
