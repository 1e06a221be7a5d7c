import { describe, expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import { cancelBatch } from "../../../src/domain/batches/end-batch.ts";
import { inputsPrefix } from "../../../src/domain/batches/write-items.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { imageInMemory } from "../../../src/domain/images/sent-image.ts";
import { invalidLine, type Line, type TakeInDeps, takeIn } from "../../../src/domain/jobs/take-in.ts";
import { Offers } from "../../../src/domain/models.ts";
import { DEFAULT_OPTIONS } from "../../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { modelEntry } from "../../support/entries.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, tinyPng } from "../../support/fake-provider.ts";
import { openBeside } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const model = { ...modelEntry, sizes: ["1K", "2K"] as const, prices: { "1K": 0.00002, "2K": 0.00004 } };

const NEVER = () => false;

/** A queued job whose input has lines for these prompts. `2K` in a prompt asks for that size, `bad` is no request. */
async function queuedJob(prompts: readonly string[], change: { consentMicroUsd?: number } = {}) {
  const { stores, blobs } = await openBeside(await tempDir());
  const { consentMicroUsd = null } = change;
  const input = { fileName: "files/abc", blobKey: "files/abc", consentMicroUsd };
  const nothing = { estimatedMicroUsd: 0, holdMicroUsd: 0 };
  const batch = await openBatchRecord(stores, 0, { ...nothing, source: "native", model: "m", input });
  await blobs.put("files/abc", Buffer.from("lines"));
  const image = imageInMemory(await tinyPng(3));
  let read = 0;
  async function* lines(): AsyncGenerator<Line> {
    for (const prompt of prompts) {
      read++;
      if (prompt === "bad") yield { key: '"k"', error: invalidLine("not this") };
      else {
        const size = prompt.includes("2K") ? "2K" : "1K";
        const images = [{ ...image, mimeType: "image/png" as const, id: null, type: null }];
        const options = { ...DEFAULT_OPTIONS, size } as const;
        yield { key: '"k"', content: { prompt, earlier: "", images, options } };
      }
    }
  }
  const deps: TakeInDeps = {
    stores,
    blobs,
    clock: new FakeClock(),
    models: [model],
    offers: new Offers([new FakeProvider({ name: "p" })], [model]),
    limits: DEFAULT_LIMITS,
    lineReaders: { native: lines },
  };
  return { deps, batch, stores, blobs, linesRead: () => read };
}

describe("the reading of a job's input", () => {
  it("writes items, references and the hold together, and a repetition changes nothing", async () => {
    const { deps, batch, stores, blobs } = await queuedJob(["a", "bad", "b 2K"]);
    let looks = 0;
    const untilThird = () => ++looks === 3;
    expect(await takeIn(deps, batch, untilThird)).toBeNull();
    expect(await stores.read.items.countByStatus(batch.id)).toEqual({ pending: 0, success: 0, failed: 0 });
    expect(await stores.read.accounts.byName("test")).toMatchObject({
      balanceMicroUsd: 1000,
      heldMicroUsd: 0,
    });
    const taken = await takeIn(deps, batch, NEVER);
    expect(taken).toMatchObject({ items: [{ prompt: "a" }, { failed: {} }, { prompt: "b 2K" }] });
    expect(await takeIn(deps, batch, NEVER)).toBeNull();
    // One image at 10, held with 12, and one of twice the price.
    expect(await stores.read.batches.byId(batch.id)).toMatchObject({
      status: "queued",
      itemCount: 3,
      failCount: 1,
      estimatedMicroUsd: 30,
      holdMicroUsd: 36,
    });
    expect(await stores.read.accounts.byName("test")).toMatchObject({
      balanceMicroUsd: 964,
      heldMicroUsd: 36,
    });
    expect(await blobs.list(inputsPrefix(batch.id))).toHaveLength(1);
    expect(await stores.read.references.ofSource(batch.id, 2)).toHaveLength(1);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("drops everything for a job that is cancelled meanwhile", async () => {
    const { deps, batch, stores, blobs } = await queuedJob(["a", "b"]);
    const end = { nowMs: 5, outputsExpireAtMs: null };
    let cancelled: Promise<unknown> | null = null;
    const cancelling = () => {
      const cancelDeps = { stores, blobs };
      cancelled ??= cancelBatch(cancelDeps, batch.id, () => end);
      return false;
    };
    const write: Stores["write"] = async (work) => {
      await cancelled;
      return stores.write(work);
    };
    expect(await takeIn({ ...deps, stores: { ...stores, write } }, batch, cancelling)).toBeNull();
    expect(await stores.read.batches.byId(batch.id)).toMatchObject({ status: "cancelled", itemCount: 0 });
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("reads no further once nobody wants it, also between two lines", async () => {
    const { deps, batch, blobs } = await queuedJob([]);
    await blobs.put("files/abc", Buffer.alloc(1_000_000, "\n"));
    let chunks = 0;
    async function* gap(_model: unknown, input: AsyncIterable<Buffer>): AsyncGenerator<Line> {
      for await (const _ of input) chunks++;
      yield* [];
    }
    let looks = 0;
    const untilThird = () => ++looks >= 3;
    expect(await takeIn({ ...deps, lineReaders: { native: gap } }, batch, untilThird)).toBeNull();
    expect(chunks).toBe(2);
  });

  it("reports what cannot be paid, and writes nothing", async () => {
    const { deps, batch, stores, linesRead } = await queuedJob(Array(200).fill("a"));
    expect(await takeIn(deps, batch, NEVER)).toMatchObject({
      error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE", source: "service" },
    });
    // A balance of 1000 pays for 83 lines at 12.
    expect(linesRead()).toBe(84);
    expect(await stores.read.items.countByStatus(batch.id)).toEqual({ pending: 0, success: 0, failed: 0 });
    expect(await stores.read.ledger.list({ batchIds: [batch.id] })).toEqual([]);
  });

  it("grants what the person agreed to, and refuses more", async () => {
    const enough = await queuedJob(["a", "b"], { consentMicroUsd: 24 });
    expect(await takeIn(enough.deps, enough.batch, NEVER)).toMatchObject({ items: [{}, {}] });
    expect(await enough.stores.read.accounts.byName("test")).toMatchObject({
      balanceMicroUsd: 1000,
      heldMicroUsd: 24,
    });
    const less = await queuedJob(["a", "b"], { consentMicroUsd: 23 });
    expect(await takeIn(less.deps, less.batch, NEVER)).toMatchObject({
      error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE" },
    });
    expect(await less.stores.read.ledger.list({ batchIds: [less.batch.id] })).toEqual([]);
  });

  it("stops at the first line too many, and says when the file is gone", async () => {
    const { deps, batch, blobs, linesRead } = await queuedJob(Array(90).fill("a"));
    expect(await takeIn({ ...deps, limits: { linesPerJob: 5 } }, batch, NEVER)).toMatchObject({
      error: { code: "BATCH_IMAGE_INVALID_ITEMS", message: "The input has more than 5 lines." },
    });
    expect(linesRead()).toBe(6);
    await blobs.delete("files/abc");
    expect(await takeIn(deps, batch, NEVER)).toMatchObject({
      error: { message: "The input file does not exist any more." },
    });
  });

  it("[LINES-4] fails the lines that the provider of the job does not take", async () => {
    const { deps, batch, stores } = await queuedJob(["a", "b 2K"]);
    const takes = { maxReferences: 9, ratios: "any", tiers: ["1K"] } as const;
    const upstream = {
      type: "t",
      identity: "procedural",
      fingerprint: "f",
      isFree: true,
      takes,
      disabled: null,
      uses: ["batches"] as const,
      modelFor: (id: string) => id,
      probe: async () => {},
    };
    const provider = Object.assign(new FakeProvider({ name: "p" }), { upstream });
    await takeIn({ ...deps, offers: new Offers([provider], [model]) }, batch, NEVER);
    const [first, second] = await stores.read.items.page(batch.id, { afterPosition: -1, limit: 9 });
    expect(first?.status).toBe("pending");
    expect(second?.error?.message).toContain("asks for a size, an aspect ratio or another option");
  });
});
