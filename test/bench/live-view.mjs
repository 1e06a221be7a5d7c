import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { createDashboardSource } from "../../build/cli/dashboard-source.js";
import { createServiceHttp } from "../../build/client/service-http.js";
import { parseConfig } from "../../build/config/load.js";
import { systemClock } from "../../build/kernel/clock.js";
import { silentLog } from "../../build/kernel/log.js";
import { startService } from "../../build/service/start-service.js";
import { median, timed } from "./measure.mjs";

// As the command line does it, before the library of the view is loaded.
process.env.NODE_ENV ??= "production";
const { showDashboard } = await import("../../build/dashboard/show.js");

const ROUNDS = 5;
const IMAGES = 100;
const MODEL = "vendorx-3.1-flash-image";
const BATCHES = 500;
const UPDATES_PER_SECOND = 100;
const SHOWN_MS = 10_000;
const config = parseConfig({}, "bench");

/** Images per second of a service with the live view over those without it; and what the view costs by itself. */
export async function measureLiveView() {
  const rates = { with: [], without: [] };
  await runBatch(false, 20);
  for (let round = 0; round < ROUNDS; round++) {
    // In turns, and not always the same one first.
    const order = round % 2 === 0 ? [false, true] : [true, false];
    for (const isShown of order) rates[isShown ? "with" : "without"].push(await runBatch(isShown, IMAGES));
  }
  const [shown, hidden] = [median(rates.with), median(rates.without)];
  const { share, frames, bytes } = await measureShare();
  const perSecond = (count) => (count / (SHOWN_MS / 1000)).toFixed(1);
  return [
    {
      name: "images per second with the live view against without",
      value: shown / hidden,
      goal: { atLeast: 0.97 },
      facts: {
        "with the view": `${shown.toFixed(1)} images/s`,
        "without it": `${hidden.toFixed(1)} images/s`,
      },
    },
    {
      name: "the view of 500 batches, 100 updates/s, 160×50",
      value: share * 100,
      unit: "% of a core",
      goal: { atMost: 10 },
      facts: { "what it writes": `${perSecond(frames)} frames/s, ${perSecond(bytes / 1000)} kB/s` },
    },
  ];
}

/** The source of the live view of `serve`. */
async function sourceOf(service, dataDirectory) {
  const { baseUrl, apiKey, ...facts } = await service.openLiveView();
  return createDashboardSource({
    http: createServiceHttp({ baseUrl, apiKey, clock: systemClock, random: Math.random }),
    url: service.url,
    clock: systemClock,
    own: {
      facts: { ...facts, dataDirectory },
      signInLink: null,
      lines: (tell) => service.feed.subscribe((event) => event.type === "request" && tell(event)),
    },
    directoryOf: () => dataDirectory,
    signal: new AbortController().signal,
  });
}

async function runBatch(isShown, count) {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const address = { host: "127.0.0.1", port: 0 };
  const options = { config, dataDirectory: data, address, announceUrl: true, workers: true, log: silentLog };
  const service = await startService(options);
  const view = isShown ? show(await sourceOf(service, data)) : null;
  try {
    const ended = new Promise((done) => {
      service.feed.subscribe((event) => event.type === "batch" && event.status === "completed" && done());
    });
    const headers = {
      authorization: `Bearer ${service.credentials.api_key}`,
      "content-type": "application/json",
    };
    const prompts = Array.from({ length: count }, (_, i) => ({ prompt: `a fox in the snow, number ${i}` }));
    const init = { method: "POST", headers, body: JSON.stringify({ model: MODEL, items: prompts }) };
    const ms = await timed(async () => {
      const answer = await fetch(`${service.url}/v1/images/batches`, init);
      if (!answer.ok) throw new Error(await answer.text());
      await ended;
    });
    return (count / ms) * 1000;
  } finally {
    await view?.close();
    await service.close(0);
    await rm(data, { recursive: true, force: true });
  }
}

/** The share of a core that the view takes, with nothing else in the process. */
async function measureShare() {
  const row = (n, successCount) => ({
    id: `imgbatch_${String(n).padStart(32, "0")}`,
    name: n % 3 === 0 ? `狐狸在雪地里奔跑 ${n}` : `a batch of foxes, number ${n}`,
    status: successCount >= 100 ? "completed" : "running",
    isDone: successCount >= 100,
    model: MODEL,
    provider: "procedural",
    itemCount: 100,
    successCount,
    failCount: n % 7,
    estimatedCostMicroUsd: 3_350_000,
    actualCostMicroUsd: successCount * 33_500,
    createdAtMs: Date.now() - n * 1000,
    endedAtMs: null,
    error: null,
    waiting: null,
    jobs: [],
  });
  let timer;
  const source = {
    abilities: { ownsService: true, openConsole: true },
    start: (tell) => {
      tell({ type: "batches", batches: Array.from({ length: BATCHES }, (_, n) => row(n, 0)) });
      let made = 0;
      timer = setInterval(() => {
        for (let i = 0; i < UPDATES_PER_SECOND / 10; i++) {
          made++;
          tell({ type: "batches", batches: [row(made % BATCHES, Math.floor(made / BATCHES))] });
          tell({ type: "images", count: 1, atMs: Date.now() });
        }
        const path = "/v1/images/batches/imgbatch_0";
        const request = {
          atMs: Date.now(),
          method: "GET",
          path,
          status: 200,
          durationMs: 3,
          key: "imgb_abcdefg",
        };
        tell({ type: "request", line: request });
        tell({ type: "vitals", vitals: { waitingItems: 5000 - made, runningItems: 2, concurrency: 2 } });
      }, 100);
      return () => clearInterval(timer);
    },
    perform: async () => {},
  };
  const view = show(source);
  await new Promise((resolve) => setTimeout(resolve, 3000));
  const [before, written] = [process.cpuUsage(), { ...view.written }];
  await new Promise((resolve) => setTimeout(resolve, SHOWN_MS));
  const { user, system } = process.cpuUsage(before);
  await view.close();
  const frames = view.written.frames - written.frames;
  return { share: (user + system) / 1000 / SHOWN_MS, frames, bytes: view.written.bytes - written.bytes };
}

/** The view on a terminal that only counts. */
function show(source) {
  const written = { frames: 0, bytes: 0 };
  const stdin = Object.assign(new PassThrough(), {
    isTTY: true,
    setRawMode: () => stdin,
    ref: () => stdin,
    unref: () => stdin,
  });
  const stdout = Object.assign(new PassThrough(), {
    isTTY: true,
    columns: 160,
    rows: 50,
    getColorDepth: () => 24,
    write: (text) => {
      written.frames++;
      written.bytes += Buffer.byteLength(text);
      return true;
    },
  });
  const end = new AbortController();
  const closed = showDashboard(source, { stdin, stdout, signal: end.signal, hasColor: true });
  return {
    written,
    close: () => {
      end.abort();
      return closed;
    },
  };
}
