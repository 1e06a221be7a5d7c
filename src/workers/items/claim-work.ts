import type { LeasedItem } from "../../domain/batches/finish-item.ts";
import { isPaid } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { ItemClaim } from "../../domain/ports/item-repository.ts";
import type { WorkerDeps } from "../deps.ts";
import type { ActiveBatch } from "./active-batch.ts";
import type { ProviderSlots } from "./provider-slots.ts";
import type { ItemWork } from "./run-item.ts";
import { wellOffers } from "./wait-for-provider.ts";

/** An item changes the provider so often, then it stays. */
const MOST_SWITCHES = 2;

/**
 * Claims the next item of a batch for a provider. Returns null when the provider cannot be asked now; `claimed` resolves
 * with null when the batch has no item for it.
 */
export function claimWork(
  deps: WorkerDeps,
  active: ActiveBatch,
  { provider }: ProviderSlots,
): { claimed: Promise<ItemWork | null> } | null {
  const well = wellOffers(deps, active);
  const offer = well.find((each) => each.provider === provider);
  const ticket = offer && deps.health.begin(provider, offer.executedModel);
  if (!offer || !ticket) return null;
  const which = well.length === 1 ? "any" : offer === well[0] ? "not-failed-here" : "failed-elsewhere";
  const claim = async () => {
    try {
      const item = await claimItem(deps, active, provider, which);
      if (item) return { batch: active.batch, item, offer, ticket };
    } catch (error) {
      ticket.dropped();
      throw error;
    }
    ticket.dropped();
    return null;
  };
  return { claimed: claim() };
}

function claimItem(
  { stores, clock, ids }: WorkerDeps,
  { batch: { id: batchId }, waitedForMs }: ActiveBatch,
  provider: ItemProvider,
  which: ItemClaim["which"],
): Promise<LeasedItem | null> {
  const nowMs = Math.max(clock.nowMs(), waitedForMs);
  const token = ids.leaseToken();
  const facts = { token, nowMs, provider: provider.name, isPaid: isPaid(provider) };
  return stores.write(async (tx) => {
    // Read inside the transaction: a batch that was just cancelled starts no item.
    if ((await tx.batches.byId(batchId))?.status !== "running") return null;
    const item = await tx.items.claim(batchId, { ...facts, which, mostSwitches: MOST_SWITCHES });
    return item && { ...item, leaseToken: token };
  });
}
