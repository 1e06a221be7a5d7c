import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseConfig } from "../../build/config/load.js";
import { imageSizePx } from "../../build/contract/image-formats.js";
import { systemClock } from "../../build/kernel/clock.js";
import { silentLog } from "../../build/kernel/log.js";
import { createProviders } from "../../build/providers/registry.js";
import { startService } from "../../build/service/start-service.js";
import { median, timed } from "./measure.mjs";

const ROUNDS = 3;
const IMAGES = 100;
const SUBJECTS = [
  "a red fox in the snow",
  "a blue sea at night",
  "a green forest",
  "a city at sunset",
  "tiles",
];
const MODEL = "vendorx-3.1-flash-image";

const config = parseConfig({}, "bench");
const prompts = Array.from({ length: IMAGES }, (_, i) => `${SUBJECTS[i % SUBJECTS.length]}, number ${i}`);

/** Images per second through the whole service (drawn, checked, durable, settled) against drawing and encoding alone. */
export async function measurePipeline() {
  const [raw, durable] = [[], []];
  let peakRss = 0;
  await drawAll(prompts.slice(0, 10));
  for (let round = 0; round < ROUNDS; round++) {
    raw.push(await timed(() => drawAll(prompts)));
    durable.push(await runBatch(round));
    peakRss = Math.max(peakRss, process.memoryUsage.rss());
  }
  const perSecond = (ms) => (IMAGES / ms) * 1000;
  const [rawRate, durableRate] = [perSecond(median(raw)), perSecond(median(durable))];
  return {
    name: "durable pipeline against raw encode",
    value: durableRate / rawRate,
    goal: { atLeast: 0.92 },
    facts: {
      "raw encode": `${rawRate.toFixed(1)} images/s`,
      "durable pipeline": `${durableRate.toFixed(1)} images/s`,
      "memory of the whole benchmark": `${(peakRss / 1e6).toFixed(0)} MB`,
    },
  };
}

/** As many at once as the service's workers run. */
async function drawAll(texts) {
  const [provider] = await createProviders(config.providers, {
    clock: systemClock,
    simulate: config.simulate,
  });
  const queue = [...texts];
  const worker = async () => {
    for (let prompt = queue.shift(); prompt !== undefined; prompt = queue.shift()) {
      const request = {
        model: MODEL,
        prompt,
        outputIndex: 0,
        tier: "1K",
        ratio: "1:1",
        size: imageSizePx("1K", "1:1"),
        mimeType: "image/png",
        references: [],
        storedReferences: [],
        attempt: 1,
        origin: "batch",
      };
      await provider.generate(request, new AbortController().signal);
    }
  };
  await Promise.all(Array.from({ length: provider.concurrency }, worker));
  await provider.close();
}

/** From the request to the settled batch, in ms; starting and stopping the service is not counted. */
async function runBatch(round) {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const address = { host: "127.0.0.1", port: 0 };
  const options = { config, dataDirectory: data, address, announceUrl: true, workers: true, log: silentLog };
  const service = await startService(options);
  try {
    const ended = new Promise((done) => {
      service.feed.subscribe((event) => event.type === "batch" && event.status === "completed" && done());
    });
    const headers = {
      authorization: `Bearer ${service.credentials.api_key}`,
      "content-type": "application/json",
    };
    const body = { model: MODEL, task_name: `round ${round}`, items: prompts.map((prompt) => ({ prompt })) };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    return await timed(async () => {
      const answer = await fetch(`${service.url}/v1/images/batches`, init);
      if (!answer.ok) throw new Error(await answer.text());
      await ended;
    });
  } finally {
    await service.close(0);
    await rm(data, { recursive: true, force: true });
  }
}
