import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import { issueKey } from "../../src/domain/accounts.ts";
import {
  type CreateBatchDeps,
  createBatch,
  inputsPrefix,
  isKnownRequest,
} from "../../src/domain/batches/create-batch.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { Offers } from "../../src/domain/models.ts";
import type { BlobStore } from "../../src/domain/ports/blob-store.ts";
import type { ImageInspector } from "../../src/domain/ports/image-inspector.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { checkRequest, type RequestRules } from "../../src/server/batch-api/check-request.ts";
import { TEST_STORES } from "../support/cluster/test-stores.ts";
import { groupEntry } from "../support/entries.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { startNode } from "../support/processes.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const CREATORS = resolve(import.meta.dirname, "../support/creators.mjs");
const key = (name: string) => ({ "idempotency-key": name });
const isReplay = (answer: Response) => answer.headers.get("idempotency-replayed") === "true";
const idOf = async (answer: Response) => ((await answer.json()) as BatchObject).id;

async function reference(shade = 0) {
  return { mime_type: "image/png", data: (await tinyPng(shade)).toString("base64") };
}

/** As many answers as there are bodies, all asked at once. */
const all = (service: TestService, bodies: readonly object[], headers: Record<string, string>) =>
  Promise.all(bodies.map((body) => service.create(body, headers)));

async function books(service: TestService) {
  const { stores, blobs } = await openBeside(service.data);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  const kinds = (await stores.read.ledger.list({})).map((entry) => entry.kind);
  return {
    batches: await stores.read.batches.all(),
    holds: kinds.filter((kind) => kind === "hold").length,
    stores,
    blobs,
  };
}

/** A service whose work waits until the test is over: batches stay as they were made. */
async function idleService(config: object = {}) {
  const provider = new FakeProvider();
  const mayGo = gate();
  provider.answer = async (_, signal) => {
    signal.addEventListener("abort", () => mayGo.fail(signal.reason));
    await mayGo.promise;
    return made(await tinyPng());
  };
  return { service: await startTestService({ providers: [provider], config }), mayGo };
}

describe("many requests at once", () => {
  it("[IDEM-1] a hundred with one key are one batch, one hold and one set of items, and all are answered with it", async () => {
    const { service } = await idleService();
    const body = { model: MODEL, items: items(3) };
    const answers = await all(service, Array(100).fill(body), key("k"));
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200]));
    expect(answers.filter((answer) => !isReplay(answer))).toHaveLength(1);
    expect(new Set(await Promise.all(answers.map(idOf))).size).toBe(1);
    const { batches, holds, stores } = await books(service);
    expect([batches.length, holds]).toEqual([1, 1]);
    expect(await stores.read.items.countByStatus(batches[0]?.id ?? "")).toMatchObject({ pending: 3 });
  });

  it("with reference images leave the files of one batch, and they are the right ones", async () => {
    const { service, mayGo } = await idleService();
    const item = { prompt: "a", reference_images: [await reference(1), await reference(2)] };
    const answers = await all(service, Array(30).fill({ model: MODEL, items: [item] }), key("k"));
    const [id = "", ...others] = new Set(await Promise.all(answers.map(idOf)));
    expect(others).toEqual([]);
    const { blobs } = await books(service);
    const files = await blobs.list("inputs/");
    expect(files.filter((file) => file.key.startsWith(inputsPrefix(id)))).toHaveLength(2);
    expect(files).toHaveLength(2);
    mayGo.open();
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 1 });
  });

  it("[IDEM-2] with one key and different bodies: one is taken, the others conflict", async () => {
    const { service } = await idleService();
    const bodies = Array.from({ length: 20 }, (_, i) => ({
      model: MODEL,
      items: [{ prompt: `picture ${i}` }],
    }));
    const answers = await all(service, bodies, key("k"));
    const statuses = answers.map((answer) => answer.status).sort();
    expect(statuses).toEqual([200, ...Array(19).fill(409)]);
    for (const answer of answers) await answer.text();
    const { batches, holds } = await books(service);
    expect([batches.length, holds]).toEqual([1, 1]);
  });

  it.skipIf(TEST_STORES !== "local")(
    "[IDEM-1] of three processes on one database make one batch",
    async () => {
      const data = await tempDir();
      const { stores, blobs } = await openBeside(data);
      const deps = { clock: systemClock, ids: randomIds };
      await stores.write(async (tx) => {
        const account = { id: "acct", name: "a", createdAtMs: 1 };
        await tx.accounts.insert(account);
        await tx.ledger.append({
          requestId: "top_up:1",
          accountId: "acct",
          batchId: null,
          kind: "top_up",
          amountMicroUsd: 20_000,
          balanceChangeMicroUsd: 20_000,
          heldChangeMicroUsd: 0,
          createdAtMs: 1,
        });
        await tx.accounts.change("acct", { balanceMicroUsd: 20_000, heldMicroUsd: 0 });
        await issueKey(tx, deps, { name: "k", accountId: "acct", group: "default", expiresAtMs: null });
      });
      const processes = Array.from({ length: 3 }, () => startNode([CREATORS, data, "8"]));
      for (const { line } of processes) expect(await line()).toBe('"ready"');
      for (const { child } of processes) child.kill("SIGUSR2");
      const answers = (await Promise.all(processes.map(({ line }) => line()))).flatMap(
        (line) => JSON.parse(line) as { id: string; replayed: boolean }[],
      );
      for (const { exited } of processes) await exited;
      const wrong = answers.filter((answer) => answer.id === undefined);
      expect(wrong).toEqual([]);
      expect(answers).toHaveLength(24);
      expect(new Set(answers.map((answer) => answer.id)).size).toBe(1);
      expect(answers.filter((answer) => !answer.replayed)).toHaveLength(1);
      expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
      expect(await blobs.list("inputs/")).toHaveLength(1);
      expect((await stores.read.ledger.list({})).map((entry) => entry.kind)).toEqual(["top_up", "hold"]);
    },
  );

  it("[MONEY-2] against a balance for seven accept exactly seven of 150", async () => {
    const models = [{ id: MODEL, prices: { "1K": 225 } }];
    const { service } = await idleService({ models });
    const answers = await all(service, Array(150).fill({ model: MODEL, items: items(1) }), {});
    const accepted = answers.filter((answer) => answer.status === 200);
    expect(answers.filter((answer) => answer.status === 402)).toHaveLength(143);
    expect(accepted).toHaveLength(7);
    for (const answer of answers) await answer.text();
    expect((await books(service)).holds).toBe(7);
  });
});

describe("what belongs to a key", () => {
  it("another key of the same account makes a batch of its own", async () => {
    const { service } = await idleService();
    const { stores } = await openBeside(service.data);
    const accountId = (await stores.read.accounts.byName("default"))?.id ?? "";
    const facts = { name: "other", accountId, group: "default", expiresAtMs: null };
    const other = await stores.write((tx) => issueKey(tx, { clock: systemClock, ids: randomIds }, facts));
    const body = { model: MODEL, items: items(1) };
    const headers = { ...key("k"), authorization: `Bearer ${other.key}` };
    const ids = [await service.create(body, key("k")), await service.create(body, headers)].map(idOf);
    expect(new Set(await Promise.all(ids)).size).toBe(2);
  });

  it("[IDEM-2] the same request is the same however it is written, and at whatever time", async () => {
    const { service } = await idleService();
    const image = await reference();
    const first = { model: MODEL, items: [{ prompt: "a", reference_images: [image] }, { prompt: "b" }] };
    const { id, task_name } = await service.submit(first, key("k"));
    // The generated name has the second of the creation in it: a replay in another second is still the same.
    expect(task_name).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
    const { stores } = await openBeside(service.data);
    await stores.write((tx) => tx.batches.update(id, { taskName: "another second" }));
    const defaults = {
      response_mime_type: "image/png",
      image_size: "1K",
      metadata: {},
      parent_batch_id: null,
    };
    const written = {
      items: [
        {
          reference_images: [{ ...image, id: null, unknown: 1 }],
          output_count: 1,
          custom_id: "item_000001",
          prompt: " a",
        },
        { prompt: "b\n", reference_images: [], output_count: null },
      ],
      aspect_ratio: "16:9",
      whatever: { deep: [1] },
      task_name: null,
      ...defaults,
      model: MODEL,
    };
    const again = await service.create(written, key("k"));
    expect([again.status, isReplay(again), await idOf(again)]).toEqual([200, true, id]);
  });

  it.each([
    ["another name", { task_name: "other" }],
    ["another type", { response_mime_type: "image/webp" }],
    ["metadata", { metadata: { a: "b" } }],
    ["another model", { model: "vendorx-3-pro-image" }],
    ["another number of outputs", { items: [{ prompt: "a", output_count: 2 }] }],
    ["another id", { items: [{ prompt: "a", custom_id: "b" }] }],
    ["another order", { items: [{ prompt: "b" }, { prompt: "a" }] }],
  ])("[IDEM-2] %s makes it another request", async (_, change) => {
    const { service } = await idleService();
    const body = { model: MODEL, items: [{ prompt: "a" }] };
    await service.submit(body, key("k"));
    const answer = await service.create({ ...body, ...change }, key("k"));
    expect([answer.status, await answer.json()]).toMatchObject([
      409,
      { error: { code: "BATCH_IMAGE_IDEMPOTENCY_CONFLICT" } },
    ]);
  });
});

describe("a replay", () => {
  const body = { model: MODEL, items: items(2) };

  it("shows the batch as it is now: cancelled, or without its outputs; a deleted record conflicts", async () => {
    const { service } = await idleService();
    const { id } = await service.submit(body, key("k"));
    const replay = async () => {
      const answer = await service.create(body, key("k"));
      const { status, ...rest } = (await answer.json()) as BatchObject;
      return [answer.status, isReplay(answer), rest.id, status];
    };
    await service.ask(`/${id}/cancel`, { method: "POST" });
    expect(await replay()).toEqual([200, true, id, "cancelled"]);
    await service.ask(`/${id}/outputs`, { method: "DELETE" });
    expect(await replay()).toEqual([200, true, id, "output_deleted"]);
    await service.ask(`/${id}`, { method: "DELETE" });
    expect((await service.create(body, key("k"))).status).toBe(409);
    expect((await books(service)).holds).toBe(1);
  });

  it("is answered although the balance is spent since", async () => {
    const models = [{ id: MODEL, prices: { "1K": 500 } }];
    const service = await startTestService({ config: { models } });
    const one = { model: MODEL, items: items(1) };
    const ids = [];
    for (const name of ["a", "b", "c"]) ids.push((await service.submit(one, key(name))).id);
    expect((await service.create(one, key("d"))).status).toBe(402);
    const answer = await service.create(one, key("a"));
    expect([answer.status, isReplay(answer), await idOf(answer)]).toEqual([200, true, ids[0]]);
    for (const id of ids) await service.until(id);
    // A refusal leaves the key free.
    expect((await service.create({ ...one, items: items(2) }, key("d"))).status).toBe(402);
  });
});

describe("the work of a request", () => {
  const counts = { put: 0, deleteAll: 0, inspect: 0, write: 0 };

  /** Asks the domain as the service does, and counts what it does to files, images and the database. */
  async function counted() {
    const data = await tempDir();
    const { stores, blobs } = await openBeside(data);
    const clock = systemClock;
    const issued = await stores.write(async (tx) => {
      await tx.accounts.insert({ id: "acct", name: "a", createdAtMs: 1 });
      await tx.accounts.change("acct", { balanceMicroUsd: 1_000_000, heldMicroUsd: 0 });
      return issueKey(
        tx,
        { clock, ids: randomIds },
        { name: "k", accountId: "acct", group: "g", expiresAtMs: null },
      );
    });
    const { key: _, ...record } = issued;
    Object.assign(counts, { put: 0, deleteAll: 0, inspect: 0, write: 0 });
    const failing = { put: false };
    const countedBlobs: BlobStore = {
      ...blobs,
      put: async (name, bytes) => {
        counts.put++;
        if (failing.put && counts.put > 1) throw new Error("disk full");
        return blobs.put(name, bytes);
      },
      deleteAll: (prefix) => {
        counts.deleteAll++;
        return blobs.deleteAll(prefix);
      },
    };
    const inspector: ImageInspector = {
      inspect: async (_bytes: Buffer) => {
        counts.inspect++;
        return { mimeType: "image/png" as const, widthPx: 1, heightPx: 1, decodedPixels: 1 };
      },
    };
    const deps: CreateBatchDeps = {
      stores: {
        ...stores,
        write: (work) => {
          counts.write++;
          return stores.write(work);
        },
      },
      blobs: countedBlobs,
      clock,
      ids: randomIds,
      offers: new Offers([new FakeProvider()], []),
      workersRunning: () => true,
    };
    const caller = { key: record, group: groupEntry };
    const { parseConfig } = await import("../../src/config/load.ts");
    const { limits, models } = parseConfig({}, "test");
    const rules: RequestRules = { limits, models, group: groupEntry, inspector, storageUriPrefixes: [] };
    const ask = async (body: object, name: string | null) => {
      const isKnown = (hash: string) => isKnownRequest(stores.read, caller, name, hash);
      return createBatch(deps, caller, await checkRequest(body, { ...rules, isKnown }), name);
    };
    return { ask, blobs, stores, failing };
  }

  it("a replay decodes no image, stores no file and writes nothing", async () => {
    const { ask } = await counted();
    const item = { prompt: "a", reference_images: [await reference(1), await reference(2)] };
    const body = { model: MODEL, items: [item] };
    const first = await ask(body, "k");
    expect(counts).toEqual({ put: 2, deleteAll: 0, inspect: 2, write: 1 });
    const again = await ask(body, "k");
    expect([again.replayed, again.batch.id]).toEqual([true, first.batch.id]);
    expect(counts).toEqual({ put: 2, deleteAll: 0, inspect: 2, write: 1 });
    await ask(body, "another key");
    expect(counts).toEqual({ put: 4, deleteAll: 0, inspect: 4, write: 2 });
  });

  it("a request that fails in the middle leaves no file", async () => {
    const { ask, blobs, stores, failing } = await counted();
    const item = { prompt: "a", reference_images: [await reference(1), await reference(2)] };
    failing.put = true;
    await expect(ask({ model: MODEL, items: [item] }, "k")).rejects.toThrow("disk full");
    expect([await blobs.list("inputs/"), await stores.read.batches.all()]).toEqual([[], []]);
    failing.put = false;
    expect((await ask({ model: MODEL, items: [item] }, "k")).replayed).toBe(false);
  });
});
