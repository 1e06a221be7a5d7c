import { named } from "../../contract/waiting.ts";
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
  #isPaused = false;

  /** After `stopping` is aborted, nothing is sent. */
  constructor(deps: WorkerDeps, stopping: AbortSignal) {
    this.#deps = deps;
    this.#stopping = stopping;
    deps.ending.addEventListener("abort", () => this.takeBackUnsent(), { once: true });
  }

  /** Whether work may begin now: not while paused, while the service stops, or when its leases may be lost. */
  get mayBegin(): boolean {
    const { ending, presence } = this.#deps;
    return !this.#isPaused && !this.#stopping.aborted && !ending.aborted && presence.isFresh;
  }

  /** While paused, nothing is sent. */
  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.takeBackUnsent();
  }

  /** The requests that a stop waits for, because they cost money. */
  get paid(): number {
    return [...this.#running].filter(({ work, state }) => state === "sent" && isPaid(work.offer.provider))
      .length;
  }

  /**
   * Makes an item in a slot, as soon as there is one. Slots are given in the order of the calls. A slot is free again when
   * the provider has answered: then `onFree` is called. `onEnd`: the result is recorded.
   */
  start(
    active: ActiveBatch,
    slots: ProviderSlots,
    work: ItemWork,
    { onFree, onEnd }: { onFree(): void; onEnd(): void },
  ): void {
    const request: RunningRequest = { work, controller: new AbortController(), state: "waiting" };
    const { signal } = request.controller;
    this.#running.add(request);
    active.running.add(request);
    let answered = (_bytes: number) => {};
    const untilAnswered = new Promise<number>((resolve) => {
      answered = resolve;
    });
    const recorded = this.#make(request, active, slots, answered).then((attempt) => {
      if (attempt instanceof ProviderError) {
        const { name } = work.offer.provider;
        active.unreachable = attempt.trouble === "unreachable" ? named(name, attempt.message) : null;
      }
      answered(bytesOf(attempt));
      return this.#record(active, work, attempt, signal);
    });
    const begun = untilAnswered.then((bytes) => {
      request.state = "ended";
      slots.record(recorded, bytes, () => {
        this.#running.delete(request);
        active.running.delete(request);
        onEnd();
      });
    });
    slots.begin(begun, onFree);
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

  /** Takes back the unsent requests that must not be sent any more. They wait for a slot, or for the rate of an upstream. */
  takeBackUnsent(): void {
    for (const { work, controller, state } of this.#running) {
      const isUnsent = state === "unsent" && work.offer.provider.upstream !== undefined;
      if ((isUnsent || state === "waiting") && !this.#maySend(work)) controller.abort();
    }
  }

  /** Takes back the requests of a batch that wait for a slot. */
  takeBackWaiting({ running }: ActiveBatch): void {
    for (const { controller, state } of running) if (state === "waiting") controller.abort();
  }

  /** Takes back the requests that wait for a slot and exceed the number that may be claimed now, the newest first. */
  takeBackSurplus({ provider, surplus }: ProviderSlots): void {
    const waiting = [...this.#running].filter(
      ({ work, state }) => state === "waiting" && work.offer.provider === provider,
    );
    for (const { controller } of waiting.reverse().slice(0, surplus)) controller.abort();
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

  async #make(
    request: RunningRequest,
    active: ActiveBatch,
    slots: ProviderSlots,
    onAnswered: (bytes: number) => void,
  ): Promise<ItemAttempt> {
    const { work, controller } = request;
    const moveTo = (state: "unsent" | "sent") => {
      if (this.#maySend(work)) request.state = state;
      else controller.abort();
    };
    // Its claim may have been on its way when the batch was held.
    if (active.isHeld || !this.#maySend(work)) return { aborted: true, isSent: false };
    // Some requests are built faster than others.
    const place = slots.takePlace();
    return makeItem(this.#deps, work, controller.signal, {
      inSlot: (ask) =>
        place.run(controller.signal, (leave) => {
          moveTo("unsent");
          const answered = (bytes: number) => {
            leave();
            onAnswered(bytes);
          };
          // The next request may have the slot at once. It must not go to a provider that begins to pause.
          return ask(answered).catch((error) => {
            const isFailure = error instanceof ProviderError && !controller.signal.aborted;
            if (isFailure) void work.ticket.failed(error, String(work.item.id));
            throw error;
          });
        }),
      beforeSending: () => moveTo("sent"),
    }).finally(place.leave);
  }

  /** Whether an item may still be sent: much can happen between its claim and its request. */
  #maySend({ offer, ticket }: ItemWork): boolean {
    if (!this.mayBegin) return false;
    return ticket.isProbe || !this.#deps.health.blockOf(offer.provider, offer.executedModel);
  }

  async #record(
    active: ActiveBatch,
    work: ItemWork,
    attempt: ItemAttempt,
    signal: AbortSignal,
  ): Promise<void> {
    const status = await recordItem(this.#deps, work, attempt, signal);
    if ("images" in attempt) await attempt.discard?.();
    if (status === "retry") active.isAllClaimed = false;
    if (status !== "success" && status !== "failed") return;
    const { batchId, customId } = work.item;
    this.#deps.feed.publish({ type: "item", batchId, customId, status });
  }
}

const nameOf = ({ itemId, leaseToken }: { itemId: number; leaseToken: string }) => `${itemId} ${leaseToken}`;

const bytesOf = (attempt: ItemAttempt) =>
  "images" in attempt ? attempt.images.reduce((sum, { length }) => sum + length, 0) : 0;
