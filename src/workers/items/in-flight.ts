import { isPaid } from "../../domain/models.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { WorkerDeps } from "../deps.ts";
import type { PoolLoad } from "../worker-pool.ts";
import type { ItemRequest } from "./make-item.ts";

/** A provider gets no new requests while images that wait to be stored hold more bytes than this. */
const MOST_STORING_BYTES = 256 * 2 ** 20;
/** At least so many images may wait to be stored at a free provider: a slow disk must not idle its few slots. */
const FEW_STORING = 8;

/** The requests for items that were claimed here and are not recorded yet, of each provider. */
export class InFlightItems {
  readonly #ofProviders: ReadonlyMap<ItemProvider, Set<ItemRequest>>;

  constructor(providers: readonly ItemProvider[]) {
    this.#ofProviders = new Map(providers.map((provider) => [provider, new Set()]));
  }

  get hasProviders(): boolean {
    return this.#ofProviders.size > 0;
  }

  add(request: ItemRequest): void {
    this.#ofProviders.get(request.work.offer.provider)?.add(request);
  }

  delete(request: ItemRequest): void {
    this.#ofProviders.get(request.work.offer.provider)?.delete(request);
  }

  all(): ItemRequest[] {
    return [...this.#ofProviders.values()].flatMap((requests) => [...requests]);
  }

  get load(): PoolLoad {
    const running = this.all().filter(({ state }) => state === "unsent" || state === "sent");
    const paid = running.filter(({ state, work }) => state === "sent" && isPaid(work.offer.provider)).length;
    const slots = [...this.#ofProviders.keys()].reduce((sum, { concurrency }) => sum + concurrency, 0);
    return { running: running.length, paid, slots };
  }

  /**
   * Returns how many items may be claimed for each provider. At a free one, as many as it has slots are claimed before there
   * is a slot for them, several at a time, so that no slot waits until the next claim is durable. At a paid one none is: a
   * lease there says that its request may have been sent.
   */
  free(): Map<ItemProvider, number> {
    const free = new Map<ItemProvider, number>();
    for (const [provider, requests] of this.#ofProviders) {
      const { concurrency } = provider;
      const storing = [...requests].filter(({ state }) => state === "answered");
      const mostStoring = isPaid(provider) ? concurrency : Math.max(concurrency, FEW_STORING);
      const storingBytes = storing.reduce((sum, { bytes }) => sum + bytes, 0);
      if (storing.length > mostStoring || storingBytes > MOST_STORING_BYTES) continue;
      const ahead = isPaid(provider) ? 0 : concurrency;
      const count = concurrency + ahead - (requests.size - storing.length);
      if (count > 0 && count >= ahead / 2) free.set(provider, count);
    }
    return free;
  }

  /** Cancels the requests that wait for a slot or for the rate of an upstream and must not be sent any more. */
  takeBackUnsent(maySend: (request: ItemRequest) => boolean): void {
    for (const request of this.all()) {
      const isUnsent = request.state === "unsent" && request.work.offer.provider.upstream !== undefined;
      if ((isUnsent || request.state === "waiting") && !maySend(request)) request.controller.abort();
    }
  }

  /** Aborts the requests for items whose lease this process does not hold any more: nobody wants their results. */
  async abortLost({ stores, presence }: WorkerDeps): Promise<void> {
    const requests = this.all().filter(({ state }) => state !== "answered");
    if (requests.length === 0) return;
    const held = new Set((await stores.read.items.leasesOf(presence.id)).map(({ leaseToken }) => leaseToken));
    for (const { work, controller, state } of requests)
      if (state !== "answered" && !held.has(work.item.leaseToken)) controller.abort();
  }

  /** Aborts the requests that a stop does not wait for. Returns how many are left. */
  abortUnlessPaid(isAbandoned: boolean): number {
    for (const { work, controller } of this.all())
      if (isAbandoned || !isPaid(work.offer.provider)) controller.abort();
    return this.all().filter(({ controller }) => !controller.signal.aborted).length;
  }

  /** Drops the leases of this process at which nothing works. No claim may be under way. */
  async dropStale({ stores, presence }: WorkerDeps): Promise<void> {
    const leases = await stores.read.items.leasesOf(presence.id);
    const ids = new Set(this.all().map(({ work }) => work.item.id));
    const stale = leases.filter(({ itemId }) => !ids.has(itemId));
    if (stale.length === 0) return;
    await stores.write(async (tx) => {
      await tx.lock("batch", ...new Set(stale.map(({ batchId }) => batchId)));
      await tx.items.dropLeases(stale);
    });
  }
}
