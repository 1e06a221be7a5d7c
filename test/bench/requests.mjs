import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { bindToCore } from "./core.mjs";
import { median, timed } from "./measure.mjs";
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
    [200, 2.7],
    [10, 5],
    [1, 5],
  ]) {
    const { id } = JSON.parse(await submit(service, count));
    const insert = sameRows(copyOf(service, join(directory, `raw-${count}.db`)), id);
    const [own, raw] = await inTurns(
      () => submit(service, count),
      async () => insert(),
    );
    results.push({
      name: `a submission of ${count} against one transaction with its rows`,
      value: median(own) / median(raw),
      goal: { atMost: goal },
      facts: { submission: `${median(own).toFixed(2)} ms`, transaction: `${median(raw).toFixed(2)} ms` },
    });
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
  const path = `/v1/images/batches/${JSON.parse(await submit(service, 100)).id}`;
  while (JSON.parse(await get(service, path)).status !== "completed");
  const bare = await startServer("bare-server.mjs", await get(service, path));
  try {
    const [own, raw] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      own.push(await costOfReads(service, path));
      raw.push(await costOfReads({ ...bare, key: service.key }, path));
    }
    const [ownUs, rawUs] = [Math.min(...own), Math.min(...raw)];
    return [
      {
        name: "the status of a batch against a bare answer",
        value: rawUs / ownUs,
        goal: { atLeast: 0.1 },
        facts: { own: `${ownUs.toFixed(1)} us of CPU`, bare: `${rawUs.toFixed(1)} us of CPU` },
      },
    ];
  } finally {
    bare.stop();
  }
}

/** The CPU time of one answer, in microseconds, at 20 connections. */
async function costOfReads(server, path) {
  const before = cpuNs(server.pid);
  let left = READS;
  const reader = async () => {
    while (left-- > 0) await get(server, path);
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, reader));
  return (cpuNs(server.pid) - before) / 1000 / READS;
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
