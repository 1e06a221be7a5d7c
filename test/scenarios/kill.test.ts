import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { FakeProvider, tinyPng } from "../support/fake-provider.ts";
import { askJobs, endedJob, inlinedOf } from "../support/jobs.ts";
import { startNode } from "../support/processes.ts";
import { content, imagePart } from "../support/realtime.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const KILLED_SERVICE = resolve(import.meta.dirname, "../support/killed-service.mjs");
const COUNT = 4;
const isSoak = Boolean(process.env.IMGBATCH_SOAK);
/** The moments that only a job has; others are those of any batch, whose work the same code does. */
const OF_A_JOB = ["input:3", "queued:2", ...(isSoak ? ["running", "making:2", "item:4", "settling"] : [])];
const OF_A_BATCH = [
  "queued",
  "item:3",
  "settling",
  ...(isSoak ? ["running", "making:2", "processing_results", "completed"] : []),
];

async function post(url: string, key: string, body: object): Promise<BatchObject | null> {
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    "idempotency-key": "k",
  };
  const init = { method: "POST", headers, body: JSON.stringify(body) };
  // The service may die before its answer arrives.
  const answer = await fetch(`${url}/v1/images/batches`, init).catch(() => null);
  return answer && ((await answer.json().catch(() => null)) as BatchObject | null);
}

/** A job of lines with an image each, and one that cannot be made. */
async function inlineJob() {
  const lines = [];
  for (let i = 0; i < COUNT; i++) {
    const request = content(`picture ${i}`, {}, [imagePart(await tinyPng(i))]);
    lines.push({ request, metadata: { key: String(i) } });
  }
  const requests = [...lines, { request: {}, metadata: { key: "odd" } }];
  return { batch: { displayName: "killed", inputConfig: { requests: { requests } } } };
}

describe("a service that is killed", () => {
  it.each(OF_A_JOB)("at %s goes on with a job: every line once, paid once", async (moment) => {
    const data = await tempDir();
    const victim = startNode([KILLED_SERVICE, data, moment]);
    const { url, key } = JSON.parse(await victim.line()) as { url: string; key: string };
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify(await inlineJob()) };
    await fetch(`${url}/v1beta/models/${MODEL}:batchGenerateContent`, init).catch(() => null);
    expect((await victim.exited).signal).toBe("SIGKILL");

    const { stores, blobs } = await openBeside(data);
    const [left] = await stores.read.batches.all();
    const done = (await stores.read.items.countByStatus(left?.id ?? "")).success;
    const provider = new FakeProvider();
    const service = await startTestService({ data, providers: [provider] });
    const listed = await (await askJobs(service, "batches")).json();
    expect(listed.operations).toHaveLength(1);
    const job = await endedJob(service, listed.operations[0]);
    expect(job.metadata).toMatchObject({
      state: "BATCH_STATE_SUCCEEDED",
      batchStats: { requestCount: "5", successfulRequestCount: "4", failedRequestCount: "1" },
    });
    const keys = inlinedOf(job).map(({ metadata }) => metadata);
    expect(keys).toEqual(["0", "1", "2", "3", "odd"].map((key) => ({ key })));
    expect(provider.requests).toHaveLength(COUNT - done);
    expect((await stores.read.batches.byId(left?.id ?? ""))?.actualMicroUsd).toBe(134_000);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it.each(OF_A_BATCH)(
    "[LIFE-5] at %s goes on at the next start: all images, none twice, paid once",
    async (moment) => {
      const data = await tempDir();
      const victim = startNode([KILLED_SERVICE, data, moment]);
      const { url, key } = JSON.parse(await victim.line()) as { url: string; key: string };
      const body = { model: MODEL, items: items(COUNT) };
      await post(url, key, body);
      expect((await victim.exited).signal).toBe("SIGKILL");

      const { stores, blobs } = await openBeside(data);
      const [left] = await stores.read.batches.all();
      const done = (await stores.read.items.countByStatus(left?.id ?? "")).success;
      const status = moment.includes(":") ? "running" : moment;
      expect(left?.status).toBe(status);

      const provider = new FakeProvider();
      const service = await startTestService({ data, providers: [provider] });
      const { id } = await service.submit(body, { "idempotency-key": "k" });
      expect(id).toBe(left?.id);
      const ended = await service.until(id);
      expect(ended).toMatchObject({ status: "completed", success_count: COUNT, actual_cost: 0.134 });
      expect(provider.requests).toHaveLength(COUNT - done);
      expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
      const history = (await stores.read.batches.events(id)).map((event) => event.to);
      expect(history).toEqual(["queued", "running", "processing_results", "settling", "completed"]);
    },
  );
});
