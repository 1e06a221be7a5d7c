import { failPending } from "../../domain/batches/end-early.ts";
import { needsOf } from "../../domain/batches/item-terms.ts";
import { waitingFor } from "../../domain/health/waiting.ts";
import type { Offer } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { WorkerDeps } from "../deps.ts";
import type { ActiveBatch } from "./active-batch.ts";

/** Returns the providers that may make the items of a batch, in their order. */
export async function offersFor(
  { stores, offers }: WorkerDeps,
  batch: BatchRecord,
): Promise<Offer<ItemProvider>[]> {
  const all = offers.forBatch(batch, await needsOf(stores.read, batch.id));
  return all.filter((offer): offer is Offer<ItemProvider> => offer.provider.kind === "item");
}

/** Returns those of a batch's providers that may be asked now. */
export function wellOffers({ health }: WorkerDeps, { offers }: ActiveBatch): Offer<ItemProvider>[] {
  return (offers ?? []).filter(({ provider, executedModel }) => !health.blockOf(provider, executedModel));
}

/**
 * Records that a batch waits because none of its providers may be asked. Returns when to look again, in ms since 1970.
 * After too long a wait the pending items fail, and null is returned.
 */
export async function waitForProvider(
  { stores, health, clock, outageMs }: WorkerDeps,
  active: ActiveBatch,
): Promise<number | null> {
  const { batch, offers } = active;
  const waiting = waitingFor(
    (offers ?? []).flatMap(({ provider, executedModel }) => health.blockOf(provider, executedModel) ?? []),
  );
  const isNew = active.waiting === null;
  active.waiting = waiting;
  const nowMs = clock.nowMs();
  const waitingSinceMs = batch.waitingSinceMs ?? nowMs;
  const giveUpMs = waitingSinceMs + outageMs;
  // Its images may be paid already: a batch waits for its provider to be configured again, however long.
  const mayGiveUp = waiting.code !== "PROVIDER_NOT_CONFIGURED";
  if (mayGiveUp && nowMs >= giveUpMs && active.running.size === 0) {
    const message = `The upstream could not be used for too long. ${waiting.message}`;
    const error = { code: "PROVIDER_ITEM_FAILED", message, source: "provider" } as const;
    await stores.write(async (tx) => {
      await tx.lock("batch", batch.id);
      await failPending(tx, batch, error, nowMs);
    });
    return null;
  }
  if (isNew) {
    await stores.write(async (tx) => {
      await tx.batches.update(batch.id, { waitingSinceMs });
      await tx.items.resetSwitches(batch.id);
    });
    batch.waitingSinceMs = waitingSinceMs;
  }
  return Math.min(
    mayGiveUp ? giveUpMs : Number.POSITIVE_INFINITY,
    waiting.untilMs ?? Number.POSITIVE_INFINITY,
  );
}
