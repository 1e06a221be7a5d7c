import { isTerminal } from "../contract/statuses.ts";
import type { Stores } from "../domain/ports/stores.ts";
import type { GoesOn } from "../domain/records.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";

/** A command that names a batch at the service of another command says so again within this time, or the batch stops. */
const NAMED_MS = 6000;

interface Deps {
  stores: Stores;
  clock: Clock;
  log: Log;
}

/**
 * Decides which batches may be worked on: the only place that does.
 *
 * A service that stays (`always`) works on what is sent to it, on what it worked on before, and on what somebody names. The
 * service inside a command (`while-named`) works on the batches that a command names, for as long as that command runs, and
 * leaves all others as they are. The column `goesOn` says the same to the queries that look for work.
 */
export class GoingOn {
  readonly kind: Exclude<GoesOn, "no">;
  readonly #deps: Deps;
  readonly #stopping = new AbortController();
  /** Until when each batch is named, by the monotonic clock. */
  readonly #named = new Map<string, number>();
  #onStopped: (batchId: string) => void = () => {};

  constructor(deps: Deps, kind: Exclude<GoesOn, "no">) {
    this.#deps = deps;
    this.kind = kind;
  }

  /** Whether work may begin for a batch that the queries have found. */
  mayBegin(batchId: string): boolean {
    return this.kind === "always" || this.#isNamed(batchId);
  }

  /** Whether a batch that has not ended is worked on. */
  includes({ id, goesOn }: { id: string; goesOn: GoesOn }): boolean {
    return goesOn === this.kind && this.mayBegin(id);
  }

  /** Called at the start of a process that has the database for itself: every command that named a batch has ended. */
  async start(): Promise<void> {
    await this.#deps.stores.write((tx) => tx.batches.stopNamed());
  }

  /** `listener` is called when nobody names a batch any more. */
  onStopped(listener: (batchId: string) => void): void {
    this.#onStopped = listener;
  }

  /** Counts a batch that has just been made: whoever made it names it. */
  begin(batchId: string): void {
    if (this.kind === "while-named") this.#name(batchId, true);
  }

  /**
   * Lets a batch go on. With `isLease`, only until the command that names it has not said so again for `NAMED_MS`; a service
   * that stays goes on all the same. Returns whether the batch was stopped before.
   */
  async name(batchId: string, isLease: boolean): Promise<boolean> {
    const { stores } = this.#deps;
    const batch = await stores.read.batches.byId(batchId);
    if (batch === null || batch.cancelAskedAtMs !== null || isTerminal(batch.status)) return false;
    const wasStopped = !this.includes(batch);
    if (this.kind === "while-named") this.#name(batchId, isLease);
    if (batch.goesOn !== this.kind) await stores.write((tx) => tx.batches.setGoesOn(batchId, this.kind));
    return wasStopped;
  }

  /** The command that named a batch with a lease has ended. */
  async leave(batchId: string): Promise<void> {
    if (this.#named.get(batchId) === Number.POSITIVE_INFINITY) return;
    if (this.#named.delete(batchId)) await this.#stop(batchId);
  }

  /** No lease ends any more. */
  close(): void {
    this.#stopping.abort();
  }

  #isNamed(batchId: string): boolean {
    return (this.#named.get(batchId) ?? 0) > this.#deps.clock.monotonicMs();
  }

  #name(batchId: string, isLease: boolean): void {
    const { clock, log } = this.#deps;
    const untilMs = isLease ? clock.monotonicMs() + NAMED_MS : Number.POSITIVE_INFINITY;
    this.#named.set(batchId, Math.max(untilMs, this.#named.get(batchId) ?? 0));
    if (!isLease) return;
    const end = async () => {
      if (this.#isNamed(batchId) || !this.#named.delete(batchId)) return;
      await this.#stop(batchId).catch((error) =>
        log.warn("that a batch is stopped could not be recorded", { batch: batchId, error: String(error) }),
      );
    };
    // A timer may end a little early.
    clock.sleep(NAMED_MS + 50, this.#stopping.signal).then(end, () => {});
  }

  async #stop(batchId: string): Promise<void> {
    this.#onStopped(batchId);
    await this.#deps.stores.write((tx) => tx.batches.setGoesOn(batchId, "no"));
  }
}
