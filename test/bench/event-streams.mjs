import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { issueKey } from "../../build/domain/accounts.js";
import { systemClock } from "../../build/kernel/clock.js";
import { randomIds } from "../../build/kernel/ids.js";
import { openDataDirectory } from "../../build/service/data-directory.js";
import { median, timed } from "./measure.mjs";
import { startQuickService } from "./start-quick-service.mjs";

const ROUNDS = 5;
const STREAMS = 50;
/** The most streams of a key. */
const STREAMS_PER_KEY = 16;
const BATCHES = 3;
const IMAGES = 200;
const SETTLED_MS = 1000;
/** The unit of `/proc/PID/stat`, on every Linux. */
const TICKS_PER_SECOND = 100;

/** Images per second of a service with 50 streams of events against without, and the growth of its memory. */
export async function measureEventStreams() {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const service = await startQuickService(data);
  try {
    const keys = [service.key, ...(await moreKeys(data))];
    const runs = { with: [], without: [] };
    await run(service);
    const reading = new AbortController();
    const { streams, told } = await openStreams(service.url, keys, reading.signal);
    await run(service);
    reading.abort();
    await Promise.allSettled(streams);
    const before = await memoryOf(service);
    for (let round = 0; round < ROUNDS; round++) {
      // In turns, and not always the same one first.
      for (const isRead of round % 2 === 0 ? [false, true] : [true, false]) {
        const stop = new AbortController();
        const open = isRead ? await openStreams(service.url, keys, stop.signal, told) : null;
        runs[isRead ? "with" : "without"].push(await run(service));
        stop.abort();
        await Promise.allSettled(open?.streams ?? []);
      }
    }
    const after = await memoryOf(service);
    const [read, unread] = [runs.with, runs.without].map((each) => ({
      rate: median(each.map(({ rate }) => rate)),
      cpuMs: median(each.map(({ cpuMs }) => cpuMs)),
    }));
    const mib = (bytes) => `${(bytes / 1024 / 1024).toFixed(0)} MiB`;
    return [
      {
        name: "images per second with 50 event streams against without",
        value: read.rate / unread.rate,
        goal: { atLeast: 0.97 },
        facts: {
          "with them": `${read.rate.toFixed(0)} images/s, ${read.cpuMs.toFixed(2)} ms of a core each`,
          "without them": `${unread.rate.toFixed(0)} images/s, ${unread.cpuMs.toFixed(2)} ms of a core each`,
          "the same by the time of the processor": (unread.cpuMs / read.cpuMs).toFixed(2),
          "events that were read": String(told.count),
        },
      },
      {
        name: "memory in use after the last round with event streams against after the first",
        value: after.usedBytes / before.usedBytes,
        goal: { atMost: 1.1 },
        facts: {
          "objects in use": `${mib(before.usedBytes)}, ${mib(after.usedBytes)}`,
          // It grows until the page caches of the database are full (16 MB for each connection), with and without streams.
          "the whole process": `${mib(before.rssBytes)}, ${mib(after.rssBytes)}`,
        },
      },
    ];
  } finally {
    await service.stop();
    await rm(data, { recursive: true, force: true });
  }
}

/** As many more keys as the streams need. */
async function moreKeys(data) {
  const { stores, close } = await openDataDirectory(data);
  try {
    const deps = { clock: systemClock, ids: randomIds };
    return await stores.write(async (tx) => {
      const account = await tx.accounts.byName("default");
      const keys = [];
      for (let more = STREAMS_PER_KEY; more < STREAMS; more += STREAMS_PER_KEY) {
        const facts = { name: "bench", accountId: account.id, group: "default", expiresAtMs: null };
        keys.push((await issueKey(tx, deps, facts)).key);
      }
      return keys;
    });
  } finally {
    await close();
  }
}

/** Opens the streams, and reads them until the signal aborts. `told` counts their events. */
async function openStreams(url, keys, signal, told = { count: 0 }) {
  const streams = [];
  for (let n = 0; n < STREAMS; n++) {
    const headers = { authorization: `Bearer ${keys[Math.floor(n / STREAMS_PER_KEY)]}` };
    let answer = await fetch(`${url}/v1/events`, { headers, signal });
    // The service hears a little later that the streams of the round before are closed.
    while (answer.status === 429) {
      await answer.text();
      await setTimeout(10);
      answer = await fetch(`${url}/v1/events`, { headers, signal });
    }
    if (!answer.ok) throw new Error(await answer.text());
    streams.push(readAll(answer.body, told));
  }
  return { streams, told };
}

async function readAll(body, told) {
  for await (const chunk of body) told.count += Buffer.from(chunk).toString().split("event: ").length - 1;
}

async function run({ url, key, pid }) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const items = Array.from({ length: IMAGES }, (_, n) => ({ prompt: `a fox in the snow, number ${n}` }));
  const body = JSON.stringify({ model: "vendorx-3.1-flash-image", items });
  const cpuBefore = await cpuOf(pid);
  const ms = await timed(async () => {
    const ids = [];
    for (let batch = 0; batch < BATCHES; batch++) {
      const answer = await fetch(`${url}/v1/images/batches`, { method: "POST", headers, body });
      ids.push((await answer.json()).id);
    }
    for (const id of ids) {
      for (;;) {
        const { status } = await (await fetch(`${url}/v1/images/batches/${id}`, { headers })).json();
        if (status === "completed") break;
        await setTimeout(20);
      }
    }
  });
  const count = BATCHES * IMAGES;
  return { rate: (count / ms) * 1000, cpuMs: ((await cpuOf(pid)) - cpuBefore) / count };
}

/** The time that all threads of a process have had a core, in milliseconds. */
async function cpuOf(pid) {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  const [user, system] = stat.slice(stat.lastIndexOf(")")).split(" ").slice(12, 14).map(Number);
  return ((user + system) / TICKS_PER_SECOND) * 1000;
}

/** The memory after all that came before has ended: the service hears a little later that a stream is closed. */
async function memoryOf({ rawUrl, pid }) {
  await setTimeout(SETTLED_MS);
  const usedBytes = Number(await (await fetch(`${rawUrl}/memory`)).text());
  const kib = Number(/VmRSS:\s+(\d+) kB/.exec(await readFile(`/proc/${pid}/status`, "utf8"))?.[1]);
  return { usedBytes, rssBytes: kib * 1024 };
}
