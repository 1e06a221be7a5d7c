import { needsOf } from "../../domain/batches/item-terms.ts";
import { noteOutage } from "../../domain/health/batch-outage.ts";
import { waitingFor } from "../../domain/health/waiting.ts";
import type { Offer } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { WorkerDeps } from "../deps.ts";
import type { ActiveBatch } from "./active-batch.ts";

/** Returns the providers that may make the items of a batch, in their order, and whether its items have references. */
export async function offersFor(
  { stores, offers }: WorkerDeps,
  batch: BatchRecord,
): Promise<{ offers: Offer<ItemProvider>[]; hasReferences: boolean }> {
  const needs = await needsOf(stores.read, batch.id);
  const all = offers.forBatch(batch, needs);
  return {
    offers: all.filter((offer): offer is Offer<ItemProvider> => offer.provider.kind === "item"),
    hasReferences: needs.references > 0,
  };
}

/** Returns those of a batch's providers that may be asked now. */
export function wellOffers({ health }: WorkerDeps, { offers }: ActiveBatch): Offer<ItemProvider>[] {
  return (offers ?? []).filter(({ provider, executedModel }) => !health.blockOf(provider, executedModel));
}

/**
 * Records that a batch waits because none of its providers may be asked. Returns when to look again, in ms since 1970, or
 * "well" when one may be asked after all. After too long a wait the pending items fail, and null is returned.
 */
export async function waitForProvider(
  { stores, health, clock, outageMs, presence }: WorkerDeps,
  active: ActiveBatch,
): Promise<number | "well" | null> {
  const { batch } = active;
  const blocks = (active.offers ?? []).map((each) => health.blockOf(each.provider, each.executedModel));
  const waiting = waitingFor(blocks);
  // A pause may have ended since the last look.
  if (waiting === null) return "well";
  const isNew = active.waiting === null;
  active.waiting = waiting;
  const nowMs = clock.nowMs();
  // Its images may be paid already: a batch waits for its provider to be configured again, however long.
  const mayGiveUp = waiting.code !== "PROVIDER_NOT_CONFIGURED";
  const { waitingSinceMs } = batch;
  const mayBeOver = mayGiveUp && waitingSinceMs !== null && nowMs >= waitingSinceMs + outageMs;
  if (isNew || waitingSinceMs === null || (mayBeOver && active.running.size === 0)) {
    const { sinceMs, isGivenUp } = await stores.write(async (tx) => {
      const facts = { batchId: batch.id, workerId: presence.id, nowMs, outageMs, waiting };
      const { sinceMs, isOver } = await noteOutage(tx, facts);
      const isGivenUp = isOver && mayGiveUp && active.running.size === 0;
      if (isGivenUp) {
        const message = `The upstream could not be used for too long. ${waiting.message}`;
        const error = { code: "PROVIDER_ITEM_FAILED", message, source: "provider" } as const;
        const fail = await tx.items.failPending(batch.id, error, nowMs, presence.id);
        await tx.batches.addCounts({ id: batch.id, success: 0, fail });
      } else if (isNew) await tx.items.resetSwitches(batch.id);
      return { sinceMs, isGivenUp };
    });
    if (isGivenUp) return null;
    batch.waitingSinceMs = sinceMs;
  }
  return Math.min(
    mayGiveUp ? (batch.waitingSinceMs ?? nowMs) + outageMs : Number.POSITIVE_INFINITY,
    waiting.untilMs ?? Number.POSITIVE_INFINITY,
  );
}
