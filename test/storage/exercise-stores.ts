import { NEW_BATCH } from "../../src/domain/batches/create-batch.ts";
import type { Repositories, Stores, UpstreamJobRecord } from "../../src/domain/ports/stores.ts";
import type { BatchRecord } from "../../src/domain/records.ts";
import { newItem } from "../support/stores.ts";

/** The calls of stores, and the values that they returned. */
export interface Transcript {
  /** The methods that were called, as `repository.method`. */
  called: Set<string>;
  lines: { method: string; returned: unknown }[];
}

const DAY_MS = 86_400_000;
const PRICE = {
  imageMicroUsd: 10,
  holdMicroUsd: 12,
  basis: {
    modelPriceUsd: 0.00002,
    groupMultiplier: 1,
    providerMultiplier: 1,
    batchDiscount: 0.5,
    holdMultiplier: 0.6,
  },
};

function batch(id: string, change: Partial<BatchRecord> = {}): BatchRecord {
  return {
    ...NEW_BATCH,
    id,
    apiKeyId: "key1",
    accountId: "acct1",
    taskName: `Task ${id}`,
    model: "m",
    mimeType: "image/png",
    parentBatchId: null,
    metadata: { ключ: "wörth \u0000 %_" },
    provider: "p",
    itemCount: 3,
    price: PRICE,
    estimatedMicroUsd: 30,
    holdMicroUsd: 36,
    createdAtMs: 10,
    submittedAtMs: 10,
    inputsPurgedAtMs: null,
    upstream: "procedural",
    needs: { references: 2, ratios: ["1:1"], sizes: ["2K"], options: ["seed"] },
    source: "batch",
    input: null,
    ...change,
  };
}

const item = (position: number) => newItem(position, { prompt: `a picture of ${position} 🐈` });

const JOB: UpstreamJobRecord = {
  id: "job1",
  batchId: "b2",
  step: "new",
  hasReferences: true,
  input: null,
  uploadedAtMs: null,
  upstreamName: null,
  endedNames: ["earlier"],
  creates: 0,
  refusals: 0,
  refusedSinceMs: null,
  sentAtMs: null,
  state: null,
  said: null,
  error: null,
  results: 0,
  createdAtMs: 5,
  failures: 1,
  polledAtMs: null,
  missingSinceMs: null,
  gone: null,
  endedAtMs: null,
  closedAtMs: null,
  stopAskedAtMs: null,
  isStopTold: false,
};

/** Calls every method of every repository, in one order, and returns what they returned. */
export async function exerciseStores(stores: Stores): Promise<Transcript> {
  const transcript: Transcript = { called: new Set(), lines: [] };
  const read = noted(stores.read, transcript);
  const write = <T>(work: (tx: Parameters<Parameters<Stores["write"]>[0]>[0]) => Promise<T>) =>
    stores.write((tx) => work(noted(tx, transcript)));

  await workers();
  await accountsAndKeys();
  await batches();
  await items();
  await jobs();
  await outputsAndReferences();
  await realtime();
  await records();
  await sharedRecords();
  return transcript;

  async function workers() {
    const facts = { version: "1", providers: ["p", "q"], isPaused: false };
    await write(async (tx) => {
      await tx.workers.insert({ ...facts, id: "gone", role: "all" });
      await tx.workers.removeAll();
      await tx.workers.silenceMs();
      for (const id of ["w1", "w2", "W3"]) await tx.workers.insert({ ...facts, id, role: "worker" });
      await tx.workers.heartbeat("w1", 60_000);
      await tx.workers.heartbeat("gone", 60_000);
      await tx.workers.isAlive("w1");
      await tx.workers.remove("w2");
      await tx.workers.removeSilent("w1", 60_000);
      await tx.workers.removeSilent("w1", -60_000);
      for (const id of ["w1", "w2", "W3"]) await tx.workers.insert({ ...facts, id, role: "worker" });
      await tx.workers.remove("w2");
      await tx.workers.setPaused(true);
    });
    await read.workers.list();
  }

  async function accountsAndKeys() {
    await write(async (tx) => {
      for (const id of ["acct2", "acct1", "Acct3"]) {
        await tx.accounts.insert({ id, name: `${id} ä`, createdAtMs: 1, isPlay: id === "acct2" });
      }
      await tx.accounts.setRealAccount("acct2", "acct1");
      await tx.accounts.change("acct1", { balanceMicroUsd: 2 ** 52, heldMicroUsd: 0 });
      await tx.accounts.change("acct1", { balanceMicroUsd: -(2 ** 52) - 1, heldMicroUsd: 1 });
      await tx.accounts.change("nobody", { balanceMicroUsd: 1, heldMicroUsd: 0 });
      await tx.accounts.byId("acct1");
      await tx.lock("account", "acct1");
      const key = { name: "k", prefix: "sk-1", accountId: "acct1", group: "default", createdAtMs: 1 };
      const ends = { expiresAtMs: 5, disabledAtMs: null, enabledAtMs: null };
      await tx.keys.insert({ ...key, ...ends, id: "key1", sha256: "aa" });
      await tx.keys.insert({ ...key, ...ends, id: "key2", sha256: "bb", expiresAtMs: null });
      await tx.keys.setDisabled("key2", 9);
      await tx.keys.setEnabled("key2", 10);
      await tx.keys.setDisabled("key2", 11);
      await tx.lock("key", "key1");
      await tx.touch();
    });
    await read.accounts.byName("acct1 ä");
    await read.accounts.byName("ACCT1 ä");
    await read.accounts.byId("nobody");
    await read.accounts.list();
    await read.keys.bySha256("aa");
    await read.keys.byId("key2");
    await read.keys.byId("nobody");
    await read.keys.list();
    const entry = { accountId: "acct1", batchId: "b1", kind: "top_up" as const, createdAtMs: 1 };
    const change = { amountMicroUsd: 7, balanceChangeMicroUsd: 7, heldChangeMicroUsd: 0 };
    const kept = await write(async (tx) => {
      await tx.ledger.append({ ...entry, ...change, requestId: "r1" });
      await tx.ledger.append({ ...entry, ...change, requestId: "r1" });
      await tx.ledger.append({ ...entry, ...change, requestId: "r2", balanceChangeMicroUsd: -3 });
      return tx.ledger.byRequestId("r1");
    });
    await read.ledger.byRequestId("r0");
    await read.ledger.list({});
    await read.ledger.list({ batchIds: ["b1", "b2"], accountId: "acct2" });
    await read.ledger.page({ accountIds: ["acct1", "acct2"], limit: 1, offset: 1 });
    await read.ledger.page({ accountIds: [], limit: 1 });
    await read.ledger.changeAfter("acct1", kept?.seq ?? 0);
    await read.ledger.changeAfter("acct2", 0);
    await failing(() => write((tx) => tx.accounts.insert({ id: "acct1", name: "other", createdAtMs: 1 })));
    await failing(() => write((tx) => tx.accounts.change("acct1", { balanceMicroUsd: 0, heldMicroUsd: -9 })));
  }

  async function batches() {
    await write(async (tx) => {
      await tx.batches.insert(batch("b1", { taskName: "100% ÄPFEL_X" }));
      await tx.batches.insert(batch("b2", { provider: "q", createdAtMs: 11 }));
      await tx.batches.insert(batch("b3", { apiKeyId: "key2", source: "native", input: input("in/b3") }));
      await tx.batches.insert(batch("b4", { apiKeyId: "key2", source: "openai", input: input("in/b4") }));
      await tx.batches.appendEvent({ batchId: "b1", from: null, to: "queued", atMs: 10 });
      await tx.batches.appendEvent({ batchId: "b1", from: "queued", to: "running", atMs: 12 });
      await tx.batches.changeStatus("b1", "queued", "running");
      await tx.batches.changeStatus("b1", "queued", "running");
      await tx.batches.update("b2", { waitingSinceMs: 7 });
      await tx.batches.addCounts({ id: "b2", success: 2, fail: 1 });
      await tx.batches.update("b2", { waitingSinceMs: 8 });
      await tx.batches.endWaits();
      await tx.batches.locked("b1");
      await tx.batches.locked("nothing");
      await tx.lock("batch", "b1");
      await tx.batches.update("b2", { error: { code: "X", message: "m", source: "service" } as never });
      await tx.batches.changeStatus("b2", "queued", "failed");
      await tx.batches.update("b2", { endedAtMs: 20, outputsExpireAtMs: 30, downloadedAtMs: 40 });
    });
    await read.batches.byId("b2");
    await read.batches.byId("b3");
    await read.batches.events("b1");
    await read.batches.countUnended("key1", "batch");
    await read.batches.keptSince(DAY_MS, { afterSeq: 0, limit: 5 });
    await read.batches.unfinishedByStatus();
    await read.batches.pendingItemCount();
    await read.batches.withStatus(["queued", "failed"]);
    await read.batches.withStatus([]);
    await read.batches.latest(2);
    await read.batches.retriesOf("key1", ["b1", "b2"], 100);
    await read.batches.retriesOf("key1", [], 100);
    await read.batches.unmadeByOthers(["p"], "always");
    await read.batches.unmadeByOthers([], "always");
    await read.batches.endedSince(5, ["failed"]);
    await read.batches.endedSince(5, []);
    await read.batches.queues("always");
    await read.batches.begun("always");
    await read.batches.outputsDue(30, { afterSeq: 0, limit: 9 });
    await read.batches.inputsDue(20, { afterSeq: 0, limit: 9 });
    await read.batches.unread("always");
    await read.batches.nextOf({ provider: "p", apiKeyId: "key2", goesOn: "always" }, 5);
    await read.batches.openBefore({ id: "b3", provider: "p", apiKeyId: "key1", goesOn: "always" }, 5);
    await write(async (tx) => {
      await tx.batches.becomeOwner("b1", "gone");
      await tx.batches.becomeOwner("b1", "w1");
      await tx.batches.becomeOwner("b1", "W3");
      await tx.batches.becomeOwner("b1", "w1");
      await tx.batches.ownerOf("b1");
      await tx.batches.setOwner("b1", "W3");
      await tx.batches.setGoesOn("b1", "while-named");
      await tx.batches.stopNamed();
      await tx.batches.cancelsAsked();
      await tx.batches.setGoesOn("b1", "always");
      await tx.batches.ownerOf("b1");
      await tx.batches.ownerOf("b2");
    });
    await read.batches.begun("always");
    await read.batches.nextOf({ provider: "q", apiKeyId: "key1", goesOn: "always" }, 5);
    await write((tx) => tx.batches.serve("b2"));
    await read.batches.queues("always");
    await read.batches.all();
    const after = (await read.batches.placeOf("b2")) ?? undefined;
    const page = { apiKeyId: "key1", limit: 10 };
    for (const filter of [
      {},
      { status: "running" as const },
      { source: "native" as const },
      { taskName: "% äpfel_" },
      { taskName: "%x" },
      { isDownloaded: true },
      { isDownloaded: false },
      { isDownloaded: false, status: "running" as const },
      { fromMs: 11 },
      { beforeMs: 11 },
      { offset: 1 },
      { ...(after && { after }) },
      { hidesRetries: true },
      {
        hidesRetries: true,
        status: "failed" as const,
        taskName: "b",
        isDownloaded: false,
        fromMs: 1,
        beforeMs: 99,
      },
    ]) {
      await read.batches.page({ ...page, ...filter });
    }
    await stores.snapshot((now) => noted(now, transcript).batches.byId("b1"));
    const record = { apiKeyId: "key1", key: "idem", requestHash: "h", createdAtMs: 1 };
    await write(async (tx) => {
      await tx.idempotency.insert({ ...record, batchId: "b1" });
      await tx.idempotency.insert({ ...record, batchId: "b2" });
      await tx.idempotency.replace({ ...record, key: "again", batchId: "b1" });
      await tx.idempotency.replace({ ...record, key: "again", batchId: "b2" });
    });
    await read.idempotency.find("key1", "again");
    await read.idempotency.find("key1", "idem");
    await read.idempotency.find("key2", "idem");
    await write(async (tx) => {
      await tx.batches.update("b1", { recordDeletedAtMs: 50 });
      await tx.idempotency.removeOfRecordsDeletedBefore(50);
      await tx.idempotency.removeOfRecordsDeletedBefore(51);
      await tx.batches.update("b1", { recordDeletedAtMs: null });
    });
  }

  async function items() {
    const own = {
      options: {
        size: "2K" as const,
        ratio: "16:9" as const,
        keepsRatio: true,
        mimeType: "image/webp" as const,
        quality: "high",
        background: "transparent" as const,
        seed: 7,
        negativePrompt: "snow",
      },
      earlier: "before",
      priceMicroUsd: 5,
      holdMicroUsd: 6,
      clientKey: "line 1",
      verbatim: { api: "native" as const, fields: { tools: [{ googleSearch: {} }] } },
    };
    const error = { code: "INVALID_ARGUMENT", message: "no \u0000", source: "service" } as const;
    await write(async (tx) => {
      const many = Array.from({ length: 1201 }, (_, i) => item(i));
      await tx.items.insertMany("b1", many);
      await tx.items.insertMany("b2", [
        { ...item(0), ...own },
        item(1),
        { ...item(2), failed: { error, atMs: 3 } },
      ]);
      await tx.items.insertMany("b3", []);
    });
    await read.items.byCustomId("b1", "i1200");
    await read.items.byCustomId("b1", "I1");
    await read.items.page("b1", { afterPosition: 4, offset: 1, limit: 3 });
    await read.items.page("b2", { afterPosition: -1, limit: 9, status: "failed" });
    await read.items.listed("b1", { afterPosition: 4, offset: 1, limit: 3 });
    await read.items.listed("b2", { afterPosition: -1, limit: 9, status: "failed" });
    const retried = { id: "b1", apiKeyId: "key1", parentBatchId: null, createdAtMs: 0 };
    await write((tx) => tx.batches.update("b2", { parentBatchId: "b1" }));
    await read.items.retriesOf(retried, ["i0", "i2", "i5"]);
    await read.items.retriesOf(retried, []);
    await write((tx) => tx.batches.update("b2", { parentBatchId: null }));
    await read.items.countByStatus("b2");
    await read.items.sums("b2");
    await read.items.sums("b3");
    await read.items.nextDueMs(0);
    await read.items.nextDueMs(9);
    await exerciseLeases();
  }

  async function exerciseLeases() {
    const which = { which: "any", mostSwitches: 2, limit: 1 } as const;
    const claim = { nowMs: 5, provider: "p", upstream: "u", isPaid: true, worker: "w1", ...which };
    const made = { modelVersion: "v1", seed: 2 ** 50, notes: [{ note: 1 }] as never, usage: null };
    const outcome = {
      ...made,
      status: "success",
      mimeType: "image/png",
      imageCount: 1,
      error: null,
      maybePaid: "no",
      answer: { api: "native", fields: { candidates: [] } },
    } as const;
    await write(async (tx) => {
      await tx.items.claim("b1", { ...claim, token: "t1" });
      await tx.items.claim("b1", { ...claim, token: "t2", which: "not-failed-here" });
      await tx.items.claim("b1", { ...claim, token: "t3", which: "failed-elsewhere" });
      const [first, second] = await tx.items.page("b1", { afterPosition: -1, limit: 2 });
      if (!first) throw new Error("no item was inserted");
      const finished = { ...first, ...outcome, finishedAtMs: 7 };
      await tx.items.finish([{ ...finished, leaseToken: "t0" }]);
      await tx.items.finish(["t0", "t1"].map((leaseToken) => ({ ...finished, leaseToken })));
      const task = { task: "t", upstream: "u" };
      await tx.items.keepTask(second?.id ?? 0, "t2", task);
      await tx.items.keepTask(second?.id ?? 0, "t0", task);
      const usage = { inputTokens: 1, outputTokens: null, costMicroUsd: 2 };
      const back = { notBeforeMs: 9, attempts: 1, failedAt: "p", maybePaid: "once", usage } as const;
      await tx.items.giveBack(second?.id ?? 0, "t2", back);
      await tx.items.giveBack(second?.id ?? 0, "t2", back);
      await tx.items.claim("b1", { ...claim, token: "t4", limit: 3, provider: "q", worker: "gone" });
      await tx.items.claim("b2", { ...claim, token: "t5" });
    });
    await read.items.abandoned();
    await read.items.abandoned("b2");
    await read.items.leasesOf("w1");
    await read.items.leasesOf("gone");
    await read.items.countLeased();
    await read.items.page("b1", { afterPosition: -1, limit: 3 });
    await write(async (tx) => {
      const [lease] = await tx.items.leasesOf("gone");
      if (lease) await tx.items.dropLeases([lease, { ...lease, leaseToken: "another" }]);
      await tx.items.dropLeases(await tx.items.leasesOf("w1"));
      await tx.items.resetSwitches("b1");
    });
    const error = { code: "RESULT_MISSING", message: "gone", source: "service" } as const;
    await write(async (tx) => {
      const [first] = await tx.items.page("b1", { afterPosition: -1, limit: 1, status: "success" });
      await tx.items.fail(first?.id ?? 0, error);
      await tx.items.markDeleted(first?.id ?? 0, 8);
      await tx.items.areLeasedBesides("b1", "w1");
      await tx.items.failPending("b1", error, 8, { besides: "w1" });
      await tx.items.failPending("b1", error, 8);
    });
    await read.items.countByStatus("b1");
  }

  async function jobs() {
    await write(async (tx) => {
      await tx.batches.changeStatus("b2", "failed", "running");
      await tx.upstreamJobs.insert(JOB);
      await tx.upstreamJobs.insert({ ...JOB, id: "job2", step: "done", createdAtMs: 4 });
      await tx.upstreamJobs.update("job1", { upstreamName: "up", hasReferences: false, endedNames: [] });
      await tx.items.assignToJob("b2", { jobId: "job1", provider: "q", limit: 1 });
      await tx.items.assignToJob("b3", { jobId: "job1", provider: "q", limit: 1 });
      await tx.items.leaseJob("job1", "lease");
      await tx.items.markJob("job1", "twice");
      await tx.items.markJob("job1", "once", "no");
      await tx.items.markJob("job1", "no", "twice");
    });
    await read.items.ofJob("job1");
    await read.items.countWithoutJob("b2");
    await write(async (tx) => {
      await tx.items.releaseFromJob((await tx.items.ofJob("job1")).map(({ id }) => id));
      await tx.items.releaseFromJob([]);
    });
    await read.upstreamJobs.byId("job1");
    await read.upstreamJobs.byId("nothing");
    await read.upstreamJobs.ofBatch("b2");
    await read.upstreamJobs.toClose();
    await read.upstreamJobs.atWork();
    transcript.called.add("upstreamJobs.databaseId");
    if ((await stores.read.upstreamJobs.databaseId()).length !== 12) throw new Error("no id of the database");
  }

  async function outputsAndReferences() {
    const [first, second] = await read.items.page("b1", { afterPosition: -1, limit: 2 });
    const facts = { batchId: "b1", sizeBytes: 2 ** 40, sha256: "cc", crc32: 2 ** 32 - 1, entryName: null };
    const size = { mimeType: "image/png", widthPx: 10, heightPx: 20 } as const;
    const ids = [second?.id ?? 0, first?.id ?? 0];
    await write(async (tx) => {
      const outputs = ids.flatMap((itemId) =>
        [1, 0].map((imageIndex) => {
          return { ...facts, ...size, itemId, imageIndex, blobKey: `out/${itemId}-${imageIndex}` };
        }),
      );
      await tx.outputs.insertMany(outputs);
      await tx.outputs.setEntryNames(
        outputs.map(({ itemId, imageIndex }) => ({
          itemId,
          imageIndex,
          entryName: `${itemId} ${imageIndex}.png`,
        })),
      );
      await tx.outputs.setEntryNames([]);
      const kept = {
        type: null,
        mimeType: "image/png",
        blobKey: "in/1",
        sha256: "dd",
      } as const;
      const reference = { ...kept, referenceId: "r" };
      await tx.references.insertMany("b1", [
        { ...reference, sourceIndex: 1, ordinal: 1 },
        { ...reference, sourceIndex: 1, ordinal: 0, referenceId: null },
        { ...reference, sourceIndex: 0, ordinal: 0 },
      ]);
    });
    await read.outputs.ofBatch("b1");
    await read.audit.extent();
    await read.audit.keptOutputs({ afterSeq: 0, toSeq: 9 });
    await read.audit.lostOutputs({ afterSeq: 0, toSeq: 9 });
    await read.audit.batches(["queued>running"], { afterSeq: 0, toSeq: 9 });
    await read.audit.accounts();
    await read.audit.requests();
    await read.outputs.ofItem(ids[0] ?? 0);
    await read.outputs.ofItems([ids[0] ?? 0]);
    await read.outputs.ofItems([]);
    await write((tx) => tx.outputs.removeOfItem(ids[0] ?? 0));
    await read.outputs.ofItem(ids[0] ?? 0);
    await read.references.ofSource("b1", 1);
    await read.references.ofSources("b1", [0, 1]);
    await read.references.ofSources("b1", []);
    await read.references.countBySource("b1");
  }

  async function realtime() {
    const hold = { worker: "w1", apiKeyId: "key1", accountId: "acct1", amountMicroUsd: 4, createdAtMs: 2 };
    await write(async (tx) => {
      await tx.realtimeHolds.insert({ ...hold, id: "h2" });
      await tx.realtimeHolds.insert({ ...hold, id: "H1", worker: "gone" });
      await tx.realtimeHolds.abandoned();
      await tx.realtimeHolds.countOpen("key1");
      await tx.realtimeHolds.isOpen("h2");
      await tx.realtimeHolds.isOpen("H1");
      await tx.realtimeHolds.list();
      await tx.realtimeHolds.remove("h2");
      await tx.realtimeHolds.remove("h2");
      const request = {
        apiKeyId: "key1",
        key: "k",
        fingerprint: "f",
        realtimeId: "h1",
        paidRuns: 1,
        tasks: { 0: { upstream: "u", task: "t" } },
      };
      const error = { code: "REALTIME_STOPPING", message: "m" } as const;
      await tx.keyedRequests.put({ ...request, answer: null, expiresAtMs: 9 });
      await tx.keyedRequests.put({ ...request, answer: { sha256: "ee" }, expiresAtMs: 9 });
      await tx.keyedRequests.put({ ...request, key: "l", answer: { error }, expiresAtMs: 8 });
      await tx.keyedRequests.remove({ ...request, key: "l", realtimeId: "another" });
    });
    await read.keyedRequests.find("key1", "l");
    await read.keyedRequests.find("key1", "nothing");
    await read.keyedRequests.ofRun("nothing");
    await read.keyedRequests.due(9, 5);
    await read.keyedRequests.answered();
    await write((tx) => tx.keyedRequests.remove({ apiKeyId: "key1", key: "l", realtimeId: "h1" }));
    const made = { model: "m", executedModel: "m2", provider: "p", size: "1K", ratio: "1:1" } as const;
    const image = {
      mimeType: "image/png",
      widthPx: 1,
      heightPx: 2,
      sizeBytes: 3,
      amountMicroUsd: 11,
    } as const;
    const usage = { ...made, ...image, apiKeyId: "key1", accountId: "acct1", createdAtMs: DAY_MS + 5 };
    await write(async (tx) => {
      await tx.usage.insertMany([0, 1].map((imageIndex) => ({ ...usage, realtimeId: "h1", imageIndex })));
      await tx.usage.insertMany([]);
      await tx.batches.update("b1", { settledAtMs: DAY_MS + 1, actualMicroUsd: 20, successCount: 2 });
    });
    await read.usage.count();
    await read.usage.list();
    const time = { fromMs: 0, beforeMs: 9 * DAY_MS };
    await read.usage.byDay({ apiKeyId: "key1", accountIds: ["acct1"], ...time });
    await read.usage.byDay({ apiKeyId: "key1", accountIds: [], ...time });
    await write(async (tx) => {
      for (const id of ["l2", "l1"]) {
        await tx.linkedImages.insert({ id, mimeType: "image/png", sizeBytes: 1, expiresAtMs: 4 });
      }
    });
    await read.linkedImages.find("l1");
    await read.linkedImages.due(4, { afterSeq: 0, limit: 5 });
    await write((tx) => tx.linkedImages.remove("l1"));
    await read.linkedImages.find("l1");
    const conversation = { apiKeyId: "key1", api: "openai", previousId: null, pictures: [] } as const;
    const working = { ...conversation, status: "in_progress", input: { prompt: "ä" }, answer: {} } as const;
    const picture = {
      blobKey: "b",
      mimeType: "image/png",
      sizeBytes: 1,
      sha256: "aa",
      from: "answer",
    } as const;
    const ended = {
      status: "completed",
      input: {},
      answer: { text: "\u0000" },
      pictures: [picture],
    } as const;
    await write(async (tx) => {
      for (const id of ["i2", "i1"]) {
        await tx.interactions.insert({ id, ...working, worker: "w1", createdAtMs: 1, expiresAtMs: 4 });
      }
      await tx.interactions.end("i1", ended);
      await tx.interactions.end("i1", { ...ended, status: "cancelled" });
    });
    await read.interactions.find("i1");
    await read.interactions.due(4, { afterSeq: 0, limit: 5 });
    await write((tx) => tx.interactions.remove("i1"));
    await read.interactions.find("i1");
  }

  async function records() {
    const calls = {
      provider: "p",
      model: "m",
      requests: 1,
      images: 2,
      errors: 0,
      maybePaidTwice: 1,
      billedMicroUsd: 2 ** 40,
      costMicroUsd: 0,
      unreportedMicroUsd: 0,
      inputTokens: 5,
      outputTokens: 6,
    };
    await read.retentionTime.read();
    await write(async (tx) => {
      await tx.providerCalls.add(0, { ...calls, lastSuccessMs: 7 });
      await tx.providerCalls.add(0, { ...calls, lastSuccessMs: null });
      await tx.providerCalls.add(2 * DAY_MS, { ...calls, provider: "q", lastSuccessMs: null });
      await tx.budgets.put({ scope: "data", limitMicroUsd: 2 ** 40, per: "day" });
      await tx.budgets.put({ scope: "data", limitMicroUsd: 5, per: "month" });
      await tx.budgets.list();
      await tx.retentionTime.write({ seenMs: 1, pausedUntilMs: 2, servedMs: 0 });
      await tx.retentionTime.write({ seenMs: 4, pausedUntilMs: 5, servedMs: 6 });
      const file = {
        mimeType: "text/plain",
        purpose: null,
        sizeBytes: 2 ** 35,
        sha256: "ff",
        createdAtMs: 1,
      };
      for (const id of ["f1", "f2"]) {
        const names = { id, displayName: `ä ${id}`, blobKey: `files/${id}`, apiKeyId: "key1" };
        await tx.files.insert({ ...file, ...names, expiresAtMs: 10 });
      }
    });
    await read.budgets.list();
    await read.budgets.spent({ fromMs: 0, beforeMs: DAY_MS });
    await read.budgets.held();
    await write((tx) => tx.budgets.remove("data"));
    await read.providerCalls.list({});
    await read.providerCalls.list({ fromMs: DAY_MS, beforeMs: 3 * DAY_MS });
    await read.retentionTime.read();
    await read.files.find("key1", "f1");
    await read.files.find("key2", "f1");
    const page = { apiKeyId: "key1", nowMs: 5, limit: 5 };
    const [newest] = await read.files.page({ ...page, order: "newest-first" });
    await read.files.page({ ...page, order: "oldest-first", purpose: "x" });
    await read.files.page({ ...page, order: "newest-first", afterSeq: newest?.seq ?? 0 });
    await read.files.bytesOf("key1", 5);
    await read.files.bytesOf("key2", 5);
    await read.files.due(10, { afterSeq: 0, limit: 5 });
    await write(async (tx) => {
      await tx.files.setExpiry("files/f1", 0);
      await tx.files.remove("files/f2");
    });
    await read.files.blobKeys();
  }

  async function sharedRecords() {
    const secret = { kind: "session", apiKeyId: "key1", batchId: null } as const;
    const facts = { id: null, displayName: "ä", mimeType: "text/plain" };
    const upload = { apiKeyId: "key1", facts, announcedBytes: 2 ** 35, touchedAtMs: 3 };
    const begun = { ...upload, receivedBytes: 0, parts: [], fileId: null };
    await write(async (tx) => {
      for (const [id, expiresAtMs] of Object.entries({ s2: 8, s1: 9, s3: 3 })) {
        await tx.timedSecrets.insert({ ...secret, id, expiresAtMs });
      }
      await tx.timedSecrets.removeExpired(3);
      await tx.timedSecrets.take("s1");
      await tx.timedSecrets.take("s1");
      for (const id of ["u2", "u1"]) await tx.uploads.insert({ ...begun, id });
      const change = { receivedBytes: 7, parts: ["p/1", "p/2"], touchedAtMs: 5 };
      await tx.uploads.change({ id: "u1", receivedBytes: 1 }, change);
      await tx.uploads.change({ id: "u1", receivedBytes: 0 }, change);
      await tx.uploads.change({ id: "u2", receivedBytes: 0 }, { fileId: "f" });
      await tx.uploads.change({ id: "u2", receivedBytes: 0 }, change);
      for (const second of [1, 5, 5, 6]) await tx.requestCounts.add("key1", second, 4);
    });
    await read.timedSecrets.find("s2");
    await read.timedSecrets.find("s3");
    await read.timedSecrets.ofKey("session", "key1");
    await read.timedSecrets.ofKey("code", "key1");
    await read.uploads.find("u1");
    await read.uploads.find("u3");
    await read.uploads.openOfKey("key1");
    await read.uploads.idleSince(4);
    await write((tx) => tx.uploads.remove("u1"));
    await read.uploads.find("u1");
    await read.requestCounts.since("key1", 5);
    await read.requestCounts.since("key2", 0);
  }

  async function failing(work: () => Promise<unknown>) {
    const end = await work().then(
      () => "nothing",
      () => "an error",
    );
    transcript.lines.push({ method: "rejects with", returned: end });
  }
}

const input = (blobKey: string) => ({ fileName: null, blobKey, consentMicroUsd: null });

/** The names of all methods that a transcript must have. */
export function methodsOf(repositories: Repositories): string[] {
  return Object.entries(repositories).flatMap(([name, repository]) =>
    typeof repository === "function" ? [name] : Object.keys(repository).map((method) => `${name}.${method}`),
  );
}

type Method = (...given: unknown[]) => Promise<unknown>;

/** The same repositories; each call is noted with what it returned. Numbers of rows (`seq`) are left out: they may have gaps. */
function noted<Given extends object>(repositories: Given, { called, lines }: Transcript): Given {
  const note =
    (method: string, ask: Method): Method =>
    async (...given) => {
      called.add(method);
      const returned = await ask(...given);
      lines.push({ method, returned: JSON.parse(JSON.stringify(listed(returned) ?? null, withoutSeq)) });
      return returned;
    };
  const all = Object.entries(repositories).map(([name, repository]) => {
    if (typeof repository === "function") return [name, note(name, repository)];
    const methods = Object.entries(repository as Record<string, Method>);
    return [
      name,
      Object.fromEntries(methods.map(([method, ask]) => [method, note(`${name}.${method}`, ask)])),
    ];
  });
  return Object.fromEntries(all);
}

const listed = (value: unknown) => (value instanceof Map ? [...value].sort() : value);

const withoutSeq = (key: string, value: unknown) => (key === "seq" ? undefined : value);
