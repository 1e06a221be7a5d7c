import { describe, expect, it, onTestFinished } from "vitest";
import { createHttpDashboardSource } from "../../../../src/cli/commands/watch-source.ts";
import { readBatch } from "../../../../src/client/answers.ts";
import { createBatch, getBatch } from "../../../../src/client/batches.ts";
import { createServiceHttp } from "../../../../src/client/service-http.ts";
import { isTerminal } from "../../../../src/contract/statuses.ts";
import type { Fact } from "../../../../src/dashboard/events.ts";
import type { Vitals } from "../../../../src/dashboard/model.ts";
import { systemClock } from "../../../../src/kernel/clock.ts";
import { FAKE_KEY, type FakeOptions, startFakeService } from "../../../support/fake-service.ts";

type Told<T extends Fact["type"]> = Extract<Fact, { type: T }>;

/** A live watch of one batch with two items, the second of which fails. */
async function watchOne(options: FakeOptions = {}) {
  const fake = await startFakeService({ failing: /bad/, ...options });
  onTestFinished(() => fake.close());
  const http = createServiceHttp({
    baseUrl: fake.url,
    apiKey: FAKE_KEY,
    clock: systemClock,
    random: () => 0.5,
  });
  const items = [
    { custom_id: "a", prompt: "a fox" },
    { custom_id: "b", prompt: "a bad fox" },
  ];
  const { batch } = await createBatch(http, JSON.stringify({ model: "m", task_name: "foxes", items }), "k");
  const facts: Fact[] = [];
  const { view, source } = createHttpDashboardSource({
    http,
    url: fake.url,
    nowMs: () => 1_800_000_000_000,
    directoryOf: () => null,
    signal: new AbortController().signal,
  });
  view.show([batch]);
  source.start((fact) => facts.push(fact));
  const of = <T extends Fact["type"]>(type: T) => facts.filter((fact): fact is Told<T> => fact.type === type);
  return {
    fake,
    batch,
    view,
    source,
    of,
    look: async () => view.show([(await getBatch(http, batch.id, {})).batch]),
    row: () => of("batches").at(-1)?.rows[0],
    vitals: (): Partial<Vitals> => Object.assign({}, ...of("vitals").map(({ vitals }) => vitals)),
  };
}

describe("the live view of watch", () => {
  it("shows each look at a batch, and counts the images that came since", async () => {
    const { look, row, of, vitals, batch, fake } = await watchOne();
    expect(of("service")[0]?.facts).toMatchObject({ url: fake.url, dataDirectory: null, startedAtMs: null });
    expect(row()).toMatchObject({ id: batch.id, name: "foxes", status: "queued", itemCount: 2 });
    expect(vitals()).toMatchObject({ waitingItems: 2 });
    await look();
    expect(row()?.status).toBe("running");
    await look();
    expect(row()).toMatchObject({ status: "completed", successCount: 1, failCount: 1, costMicroUsd: 33_500 });
    expect(of("images").reduce((sum, { count }) => sum + count, 0)).toBe(1);
    expect(vitals()).toMatchObject({ waitingItems: 0 });
  });

  it("offers only what a service elsewhere can do", async () => {
    const { source } = await watchOne();
    expect(source.abilities).toMatchObject({ pause: false, retry: false, endsService: false, picture: true });
  });

  it("shows a status that it does not know as it is, and never as done", async () => {
    const { view, row } = await watchOne();
    const odd = readBatch({ id: "x", status: "pondering" });
    if (odd === null) throw new Error("this is no batch");
    view.show([odd]);
    expect(row()).toMatchObject({ name: "x", statusText: "pondering" });
    expect(isTerminal(row()?.status ?? "completed")).toBe(false);
  });

  it("opens a batch with its items, and leaves out what the service does not tell", async () => {
    const { source, batch, of, look } = await watchOne({ statuses: ["running"] });
    await source.perform({ type: "open-detail", batchId: batch.id });
    expect(of("detail")[0]?.detail).toMatchObject({
      batchId: batch.id,
      history: null,
      items: [
        { customId: "a", status: "success", prompt: "a fox", error: null, sizeBytes: null },
        { customId: "b", status: "failed", error: "PROVIDER_ITEM_FAILED: It did not work." },
      ],
    });
    await source.perform({ type: "close-detail" });
    await look();
    expect(of("detail")).toHaveLength(1);
  });

  it("shows an image of a service elsewhere as pixels", async () => {
    const { source, batch, of } = await watchOne();
    await source.perform({
      type: "show-picture",
      batchId: batch.id,
      customId: "a",
      box: { widthPx: 6, heightPx: 6 },
    });
    expect(of("picture")[0]?.picture).toMatchObject({
      customId: "a",
      caption: expect.stringContaining("image/png"),
    });
  });

  it("cancels and deletes through the service, and throws its refusals in words", async () => {
    const { source, batch, row, of, fake } = await watchOne({ statuses: ["running"] });
    const batchId = batch.id;
    await expect(source.perform({ type: "delete-outputs", batchId })).rejects.toThrow("Not yet.");
    await source.perform({ type: "cancel", batchId });
    expect(row()?.status).toBe("cancelled");
    await source.perform({ type: "delete-outputs", batchId });
    expect(row()?.status).toBe("output_deleted");
    await source.perform({ type: "delete-record", batchId });
    expect(of("batch-gone")).toEqual([{ type: "batch-gone", id: batchId }]);
    expect(fake.batches).toHaveLength(0);
    await source.perform({ type: "open-folder", batchId });
    expect(of("message").at(-1)?.text).toBe("The directory of this batch is unknown here.");
  });
});
