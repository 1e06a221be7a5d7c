import { isPaid } from "../../domain/offers.ts";
import { ProviderError } from "../../domain/ports/image-provider.ts";
import type { WorkerDeps } from "../deps.ts";
import type { ActiveBatch, RunningRequest } from "./active-batch.ts";
import type { ProviderSlots } from "./provider-slots.ts";
import { type ItemAttempt, type ItemWork, makeItem, recordItem } from "./run-item.ts";

/** Sends the requests for items that were claimed, and records their results. */
export class Requests {
  readonly #deps: WorkerDeps;
  readonly #stopping: AbortSignal;
  readonly #running = new Set<RunningRequest>();

  /** After `stopping` is aborted, nothing is sent. */
  constructor(deps: WorkerDeps, stopping: AbortSignal) {
    this.#deps = deps;
    this.#stopping = stopping;
  }

  /** The requests that a stop waits for, because they cost money. */
  get paid(): number {
    return [...this.#running].filter(({ work, state }) => state === "sent" && isPaid(work.offer.provider))
      .length;
  }

  /** Makes an item in a slot, which is free again as soon as the provider has answered. `onEnd`: it is recorded. */
  start(active: ActiveBatch, slots: ProviderSlots, work: ItemWork, onEnd: () => void): void {
    const request: RunningRequest = { work, controller: new AbortController(), state: "unsent" };
    const { signal } = request.controller;
    this.#running.add(request);
    active.running.add(request);
    void slots.queue.add(async () => {
      const attempt = await this.#make(request);
      request.state = "ended";
      if (attempt instanceof ProviderError)
        active.unreachable = attempt.trouble === "unreachable" ? attempt.message : null;
      slots.record(this.#record(active, work, attempt, signal), bytesOf(attempt), () => {
        this.#running.delete(request);
        active.running.delete(request);
        onEnd();
      });
    });
  }

  /** Aborts the requests for items whose lease this process does not hold any more: nobody wants their results. */
  async abortLost(): Promise<void> {
    const running = [...this.#running].filter(({ state }) => state !== "ended");
    if (running.length === 0) return;
    const { stores, presence } = this.#deps;
    const held = new Set((await stores.read.items.leasesOf(presence.id)).map(nameOf));
    for (const { work, controller, state } of running) {
      const { id: itemId, leaseToken } = work.item;
      if (state !== "ended" && !held.has(nameOf({ itemId, leaseToken }))) controller.abort();
    }
  }

  /** Takes back the requests that wait to be sent to an upstream, as for its rate, and must not be sent any more. */
  takeBackUnsent(): void {
    for (const { work, controller, state } of this.#running) {
      const isWaiting = state === "unsent" && work.offer.provider.upstream !== undefined;
      if (isWaiting && !this.#maySend(work)) controller.abort();
    }
  }

  /** Aborts what still runs after `graceMs`, or after `idle` at once: all of it, or what is not paid. */
  async stop(graceMs: number, isAbandoned: boolean, idle: Promise<unknown>): Promise<void> {
    this.takeBackUnsent();
    const grace = new AbortController();
    void idle.then(() => grace.abort());
    await this.#deps.clock.sleep(graceMs, grace.signal).catch(() => {});
    for (const { work, controller } of this.#running)
      if (isAbandoned || !isPaid(work.offer.provider)) controller.abort();
    const paid = [...this.#running].filter(({ controller }) => !controller.signal.aborted).length;
    if (paid > 0) this.#deps.log.info("waiting for requests that are paid", { paid });
    await idle;
  }

  async #make(request: RunningRequest): Promise<ItemAttempt> {
    const { work, controller } = request;
    if (!this.#maySend(work)) return { aborted: true, isSent: false };
    return makeItem(this.#deps, work, controller.signal, () => {
      if (this.#maySend(work)) request.state = "sent";
      else controller.abort();
    });
  }

  /** An item is not sent when the service stops, its provider pauses or its lease may be lost, between the claim and the request. */
  #maySend({ offer, ticket }: ItemWork): boolean {
    if (this.#stopping.aborted || !this.#deps.presence.isFresh) return false;
    return ticket.isProbe || !this.#deps.health.blockOf(offer.provider, offer.executedModel);
  }

  async #record(
    active: ActiveBatch,
    work: ItemWork,
    attempt: ItemAttempt,
    signal: AbortSignal,
  ): Promise<void> {
    const status = await recordItem(this.#deps, work, attempt, signal);
    if (status === "retry") active.isAllClaimed = false;
    if (status !== "success" && status !== "failed") return;
    const { batchId, customId } = work.item;
    this.#deps.feed.publish({ type: "item", batchId, customId, status });
  }
}

const nameOf = ({ itemId, leaseToken }: { itemId: number; leaseToken: string }) => `${itemId} ${leaseToken}`;

const bytesOf = (attempt: ItemAttempt) =>
  "images" in attempt ? attempt.images.reduce((sum, { length }) => sum + length, 0) : 0;
