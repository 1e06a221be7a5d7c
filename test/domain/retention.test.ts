import { describe, expect, it } from "vitest";
import { sweep } from "../../src/domain/retention.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";

const HOUR_MS = 3_600_000;
const at = (ms: number) => ({ nowMs: ms, dueMs: ms });
const retention = { inputHours: 1, outputHours: 2, sweepMinutes: 10 };

/** A finished batch with a reference image, on a clock that the test moves; sweeps are ten minutes apart. */
async function endedBatch(config: object = { retention }) {
  const clock = new FakeClock();
  const service = await startTestService({ clock, config });
  const reference = { mime_type: "image/png", data: (await tinyPng()).toString("base64") };
  const item = { custom_id: "a", prompt: "a", reference_images: [reference] };
  const { id } = await service.submit({ model: MODEL, items: [item] }, { "idempotency-key": "k" });
  const ended = await service.until(id);
  // The first sweep, of the start, is over.
  await expect.poll(() => clock.sleeperCount).toBe(1);
  const { stores, blobs } = await openBeside(service.data);
  const files = async () => [await blobs.list("inputs/"), await blobs.list("outputs/")].map((l) => l.length);
  return { clock, service, id, ended, stores, blobs, files };
}

describe("retention", () => {
  it("[KEEP-1] deletes inputs and then outputs when their time has come, and keeps the record", async () => {
    const { clock, service, id, ended, files } = await endedBatch();
    expect(ended.expires_at).toBe(Math.floor((clock.nowMs() + 2 * HOUR_MS) / 1000));
    expect(await files()).toEqual([1, 1]);
    clock.advance(HOUR_MS);
    await expect.poll(files).toEqual([0, 1]);
    expect((await service.batch(id)).status).toBe("completed");
    await expect.poll(() => clock.sleeperCount).toBe(1);
    clock.advance(HOUR_MS);
    await expect.poll(files).toEqual([0, 0]);
    expect(await service.batch(id)).toMatchObject({ status: "output_deleted", actual_cost: 0.0335 });
  });

  it("0 hours keeps everything", async () => {
    const never = { inputHours: 0, outputHours: 0, sweepMinutes: 10 };
    const { clock, ended, files, stores, blobs } = await endedBatch({ retention: never });
    expect(ended.expires_at).toBeNull();
    await sweep({ stores, blobs }, { ...at(clock.nowMs() + 10_000 * HOUR_MS), inputRetentionMs: 0 });
    expect(await files()).toEqual([1, 1]);
  });

  it("goes on after a delete that fails, and tries it again", async () => {
    const { clock, service, id, stores, blobs, files } = await endedBatch();
    const other = await service.submit({ model: MODEL, items: items(1) });
    await service.until(other.id);
    const failing = {
      ...blobs,
      deleteAll: async (prefix: string) => {
        if (prefix.includes(id)) throw new Error("the disk says no");
        return blobs.deleteAll(prefix);
      },
    };
    const due = { ...at(clock.nowMs() + 3 * HOUR_MS), inputRetentionMs: HOUR_MS };
    const report = await sweep({ stores, blobs: failing }, due);
    expect(report.failures.map((failure) => failure.batchId)).toEqual([id, id]);
    expect(report.outputsDeleted.sort()).toEqual([id, other.id].sort());
    expect((await service.batch(id)).status).toBe("output_deleted");
    expect(await files()).toEqual([1, 1]);
    expect((await sweep({ stores, blobs }, due)).failures).toEqual([]);
    expect(await files()).toEqual([0, 0]);
  });

  it("ends early when the process is about to stop; the next sweep goes on", async () => {
    const { clock, service, stores, blobs, files } = await endedBatch();
    const other = await service.submit({ model: MODEL, items: items(1) });
    await service.until(other.id);
    const ending = new AbortController();
    const stopping = {
      ...blobs,
      deleteAll: (prefix: string) => blobs.deleteAll(prefix).finally(() => ending.abort()),
    };
    const due = { ...at(clock.nowMs() + 3 * HOUR_MS), inputRetentionMs: HOUR_MS };
    const report = await sweep({ stores, blobs: stopping, ending: ending.signal }, due);
    expect([report.outputsDeleted.length, await files()]).toEqual([1, [1, 1]]);
    expect((await sweep({ stores, blobs }, due)).outputsDeleted).toHaveLength(1);
    expect(await files()).toEqual([0, 0]);
  });

  it("an idempotency key lives a year longer than the record of its batch", async () => {
    const { clock, service, id, stores, blobs } = await endedBatch();
    await service.ask(`/${id}`, { method: "DELETE" });
    const keyId = (await stores.read.batches.byId(id))?.apiKeyId ?? "";
    const sweepAt = (ms: number) =>
      sweep({ stores, blobs }, { ...at(clock.nowMs() + ms), inputRetentionMs: 0 });
    await sweepAt(365 * 24 * HOUR_MS);
    expect(await stores.read.idempotency.find(keyId, "k")).not.toBeNull();
    await sweepAt(365 * 24 * HOUR_MS + 1);
    expect(await stores.read.idempotency.find(keyId, "k")).toBeNull();
  });
});
