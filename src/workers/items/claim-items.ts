import type { LeasedItem } from "../../domain/batches/finish-item.ts";
import type { Ticket } from "../../domain/health/provider-health.ts";
import { isPaid, type Offer } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { ItemClaim } from "../../domain/ports/item-repository.ts";
import type { WorkerDeps } from "../deps.ts";
import { availableOffers, type ItemBatch, type ItemWork } from "./item-batch.ts";

/** How often an item may move to another provider. */
const MOST_SWITCHES = 2;

/** The permission to ask a provider for an item of a batch. */
export interface PlannedClaim {
  active: ItemBatch;
  offer: Offer<ItemProvider>;
  ticket: Ticket;
  which: ItemClaim["which"];
}

/** Returns null when the provider cannot be asked for the batch now. */
export function planClaim(deps: WorkerDeps, active: ItemBatch, provider: ItemProvider): PlannedClaim | null {
  const available = availableOffers(deps, active);
  const offer = available.find((each) => each.provider === provider);
  const ticket = offer && deps.health.begin(provider, offer.executedModel);
  if (!offer || !ticket) return null;
  const which =
    available.length === 1 ? "any" : offer === available[0] ? "not-failed-here" : "failed-elsewhere";
  return { active, offer, ticket, which };
}

/** Claims an item for each of the plans, all in one transaction. Null where the batch has no item for the provider. */
export async function claimItems(
  deps: WorkerDeps,
  plans: readonly PlannedClaim[],
  token: string,
): Promise<(ItemWork | null)[]> {
  let claimed = new Map<ItemBatch, LeasedItem[]>();
  const works: (ItemWork | null)[] = [];
  try {
    claimed = await claimAll(deps, plans, token);
  } finally {
    for (const { active, offer, ticket } of plans) {
      const item = claimed.get(active)?.shift();
      const { batch, hasReferences } = active;
      works.push(item ? { batch, item, offer, ticket, hasReferences } : null);
      if (!item) ticket.dropped();
    }
  }
  return works;
}

/** Claims for each batch as many items as it has plans. */
function claimAll(
  { stores, clock, presence }: WorkerDeps,
  plans: readonly PlannedClaim[],
  token: string,
): Promise<Map<ItemBatch, LeasedItem[]>> {
  const nowMs = clock.nowMs();
  const ofBatches = new Map<ItemBatch, PlannedClaim[]>();
  for (const plan of plans) ofBatches.set(plan.active, [...(ofBatches.get(plan.active) ?? []), plan]);
  return stores.write(async (tx) => {
    const claimed = new Map<ItemBatch, LeasedItem[]>();
    for (const [active, [plan, ...others]] of ofBatches) {
      if (!plan) continue;
      const { provider } = plan.offer;
      const items = await tx.items.claim(active.batch.id, {
        token,
        worker: presence.id,
        nowMs: Math.max(nowMs, active.waitedForMs),
        provider: provider.name,
        isPaid: isPaid(provider),
        which: plan.which,
        mostSwitches: MOST_SWITCHES,
        limit: 1 + others.length,
      });
      claimed.set(
        active,
        items.map((item) => ({ ...item, leaseToken: token })),
      );
    }
    return claimed;
  });
}

/**
 * Drops the leases of this process on items of a batch at which nothing works: giving one back has failed, or a claim was
 * stored although it seemed to fail. `claiming`: the tokens of the claims that are being made. Returns how many there were.
 */
export async function dropStale(
  { stores, presence }: WorkerDeps,
  { batch, requests }: ItemBatch,
  claiming: ReadonlySet<string>,
): Promise<number> {
  const leases = await stores.read.items.leasesOf(presence.id);
  // Only now: whatever begins after the reading has a token that was not read.
  const active = new Set([...requests].map(({ work }) => work.item.id));
  const stale = leases.filter(
    ({ batchId, itemId, leaseToken }) =>
      batchId === batch.id && !active.has(itemId) && !claiming.has(leaseToken),
  );
  if (stale.length === 0) return 0;
  return stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    return tx.items.dropLeases(stale);
  });
}
