import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseConfig } from "../../build/config/load.js";
import { imageSizePx } from "../../build/contract/image-formats.js";
import { DEFAULT_OPTIONS } from "../../build/domain/ports/image-provider.js";
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

/**
 * Images per second through the whole service against drawing and encoding alone: in a batch (drawn, checked, durable,
 * settled), and in real time with two requests at once.
 */
export async function measurePipeline() {
  const times = { raw: [], durable: [], realtime: [] };
  await drawAll(prompts.slice(0, 10));
  for (let round = 0; round < ROUNDS; round++) {
    times.raw.push(await timed(() => drawAll(prompts)));
    times.durable.push(await runBatch(round));
    times.realtime.push(await runRealtime());
  }
  const rateOf = (name) => (IMAGES / median(times[name])) * 1000;
  const row = (name, key, goal) => ({
    name: `${name} against raw encode`,
    value: rateOf(key) / rateOf("raw"),
    goal: { atLeast: goal },
    facts: {
      "raw encode": `${rateOf("raw").toFixed(1)} images/s`,
      [name]: `${rateOf(key).toFixed(1)} images/s`,
    },
  });
  return [row("durable pipeline", "durable", 0.8), row("real time, two at once,", "realtime", 0.8)];
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
        options: DEFAULT_OPTIONS,
        pixels: imageSizePx("1K", "1:1"),
        references: [],
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
function runBatch(round) {
  return withService(async (service, headers) => {
    const ended = new Promise((done) => {
      service.feed.subscribe((event) => event.type === "batch" && event.status === "completed" && done());
    });
    const body = { model: MODEL, task_name: `round ${round}`, items: prompts.map((prompt) => ({ prompt })) };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    return timed(async () => {
      const answer = await fetch(`${service.url}/v1/images/batches`, init);
      if (!answer.ok) throw new Error(await answer.text());
      await ended;
    });
  });
}

/** From the first request to the last answer, in ms. */
function runRealtime() {
  return withService((service, headers) => {
    const queue = [...prompts];
    const url = `${service.url}/v1beta/models/${MODEL}:generateContent`;
    const worker = async () => {
      for (let text = queue.shift(); text !== undefined; text = queue.shift()) {
        const generationConfig = { responseModalities: ["IMAGE"], imageConfig: {} };
        const body = JSON.stringify({ contents: [{ role: "user", parts: [{ text }] }], generationConfig });
        const answer = await fetch(url, { method: "POST", headers, body });
        if (!answer.ok) throw new Error(await answer.text());
        await answer.arrayBuffer();
      }
    };
    return timed(() => Promise.all([worker(), worker()]));
  });
}

async function withService(work) {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const address = { host: "127.0.0.1", port: 0 };
  const options = { config, dataDirectory: data, address, announceUrl: true, workers: true, log: silentLog };
  const service = await startService(options);
  try {
    return await work(service, {
      authorization: `Bearer ${service.credentials.api_key}`,
      "content-type": "application/json",
    });
  } finally {
    await service.close(0);
    await rm(data, { recursive: true, force: true });
  }
}
