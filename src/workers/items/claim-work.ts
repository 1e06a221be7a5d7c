import type { LeasedItem } from "../../domain/batches/finish-item.ts";
import type { Ticket } from "../../domain/health/provider-health.ts";
import { isPaid, type Offer } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { ItemClaim } from "../../domain/ports/item-repository.ts";
import type { WorkerDeps } from "../deps.ts";
import type { ActiveBatch } from "./active-batch.ts";
import type { ItemWork } from "./run-item.ts";
import { wellOffers } from "./wait-for-provider.ts";

/** An item changes the provider so often, then it stays. */
const MOST_SWITCHES = 2;

/** The permission to ask a provider for an item of a batch. */
export interface Turn {
  active: ActiveBatch;
  offer: Offer<ItemProvider>;
  ticket: Ticket;
  which: ItemClaim["which"];
}

/** Returns null when the provider cannot be asked for the batch now. */
export function takeTurn(deps: WorkerDeps, active: ActiveBatch, provider: ItemProvider): Turn | null {
  const well = wellOffers(deps, active);
  const offer = well.find((each) => each.provider === provider);
  const ticket = offer && deps.health.begin(provider, offer.executedModel);
  if (!offer || !ticket) return null;
  const which = well.length === 1 ? "any" : offer === well[0] ? "not-failed-here" : "failed-elsewhere";
  return { active, offer, ticket, which };
}

/** Claims an item for each turn, all in one transaction. Null where the batch has no item for the provider. */
export async function claimItems(deps: WorkerDeps, turns: readonly Turn[]): Promise<(ItemWork | null)[]> {
  let items: (LeasedItem | null)[] = [];
  try {
    items = await claimAll(deps, turns);
  } finally {
    for (const [at, { ticket }] of turns.entries()) if (!items[at]) ticket.dropped();
  }
  return turns.map(({ active: { batch }, offer, ticket }, at) => {
    const item = items[at];
    return item ? { batch, item, offer, ticket } : null;
  });
}

function claimAll(
  { stores, clock, ids }: WorkerDeps,
  turns: readonly Turn[],
): Promise<(LeasedItem | null)[]> {
  const nowMs = clock.nowMs();
  return stores.write(async (tx) => {
    const without = new Set<ActiveBatch>();
    const items: (LeasedItem | null)[] = [];
    for (const { active, offer, which } of turns) {
      const item = without.has(active) ? null : await claim(active, offer.provider, which);
      if (!item) without.add(active);
      items.push(item);
    }
    return items;

    async function claim(
      { batch: { id }, waitedForMs }: ActiveBatch,
      provider: ItemProvider,
      which: ItemClaim["which"],
    ): Promise<LeasedItem | null> {
      // Read inside the transaction: a batch that was just cancelled starts no item.
      if ((await tx.batches.locked(id))?.status !== "running") return null;
      const leaseToken = ids.leaseToken();
      const item = await tx.items.claim(id, {
        token: leaseToken,
        nowMs: Math.max(nowMs, waitedForMs),
        provider: provider.name,
        isPaid: isPaid(provider),
        which,
        mostSwitches: MOST_SWITCHES,
      });
      return item && { ...item, leaseToken };
    }
  });
}
