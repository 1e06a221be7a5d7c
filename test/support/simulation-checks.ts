import { expect } from "vitest";
import { isTerminal } from "../../src/contract/statuses.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import type { ItemRecord } from "../../src/domain/records.ts";
import { itemOf, type Simulation } from "./simulation.ts";

/** Checks what is true at every moment, whatever is under way. */
export async function checkMoment(simulation: Simulation): Promise<void> {
  const { problems } = await checkInvariants(simulation.stores, simulation.blobs);
  expect(problems).toEqual([]);
}

/** Checks what is true when nothing is left to do: of every batch, its money, its items, its files and its upstream job. */
export async function checkEnd(simulation: Simulation): Promise<void> {
  await checkMoment(simulation);
  const { batches, items, outputs, ledger, upstreamJobs, accounts } = simulation.stores.read;
  for (const batch of await batches.all()) {
    expect(isTerminal(batch.status), `${batch.id} is ${batch.status}`).toBe(true);
    const { success, failed, pending } = await items.countByStatus(batch.id);
    expect([success + failed, pending]).toEqual([batch.itemCount, 0]);
    const sum = async (kind: string) =>
      (await ledger.list({ batchIds: [batch.id] }))
        .filter((entry) => entry.kind === kind)
        .map((entry) => entry.amountMicroUsd);
    const cost = success * batch.price.imageMicroUsd;
    expect(await sum("hold")).toEqual([batch.holdMicroUsd]);
    expect(await sum("capture")).toEqual(cost > 0 ? [cost] : []);
    expect(await sum("release")).toEqual(batch.holdMicroUsd > cost ? [batch.holdMicroUsd - cost] : []);
    const granted = await sum("grant");
    expect(await sum("take_back")).toEqual(granted.length === 0 ? [] : await sum("release"));
    const named = (await outputs.ofBatch(batch.id)).map((output) => output.blobKey);
    const kept = [...simulation.files.keys()].filter(
      (key) => key.startsWith(`outputs/${batch.id}/`) && !simulation.damaged.has(itemOf(key)),
    );
    expect(kept.sort()).toEqual(batch.status === "output_deleted" ? [] : named.sort());
    for (const job of await upstreamJobs.ofBatch(batch.id)) {
      const upstream = [...simulation.jobs.values()].filter(({ jobId }) => jobId === job.id);
      expect(upstream.filter(({ state }) => state === "running")).toEqual([]);
      // Nothing is late in this upstream's list: no job is created twice, unless another process takes over.
      expect(upstream.length).toBeLessThanOrEqual(simulation.processes.length === 1 ? 1 : job.creates);
      expect(job.step).toBe("closed");
    }
  }
  for (const account of await accounts.list()) expect(account.heldMicroUsd).toBe(0);
}

/**
 * Checks the feed's news of a batch: each move once and in order, and of each item its outcome, once. An image was told
 * as made before its file was found damaged.
 */
export async function checkFeed(simulation: Simulation, batchId: string): Promise<void> {
  const told = simulation.events.filter((event) => "batchId" in event && event.batchId === batchId);
  const moves = told.flatMap((event) => (event.type === "batch" ? [event.status] : []));
  const history = (await simulation.stores.read.batches.events(batchId)).map((event) => event.to);
  expect(moves).toEqual(history.filter((status) => status !== "queued" && status !== "output_deleted"));
  const outcomes = told.flatMap((event) => (event.type === "item" ? [[event.customId, event.status]] : []));
  const all = await simulation.stores.read.items.page(batchId, { afterPosition: -1, limit: 1000 });
  const wasMade = ({ error }: ItemRecord) => error?.code === "RESULT_MISSING" && error.source === "service";
  const expected = all.map((item) => [item.customId, wasMade(item) ? "success" : item.status]);
  expect(outcomes.sort()).toEqual(expected.sort());
}

/**
 * No image was asked for once more after a request whose outcome nobody knows, unless it is marked, and never a third time.
 * The prompts are all different.
 */
export async function checkMarks(simulation: Simulation): Promise<void> {
  const { batches, items } = simulation.stores.read;
  for (const batch of await batches.all()) {
    for (const item of await items.page(batch.id, { afterPosition: -1, limit: 1000 })) {
      if (item.provider !== "items" || item.error?.code === "CANCELLED") continue;
      const isUnknown = item.error?.message.includes("no outcome is known") ?? false;
      const lost = (simulation.sent.get(item.prompt) ?? 0) - item.attempts - (isUnknown ? 0 : 1);
      const most = { no: 0, once: 1, twice: isUnknown ? 2 : 1 }[item.maybePaid];
      expect(lost, `${item.prompt} of ${batch.id}: ${JSON.stringify(item)}`).toBeLessThanOrEqual(most);
    }
  }
}
