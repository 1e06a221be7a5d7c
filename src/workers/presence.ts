import { setMaxListeners } from "node:events";
import { StorageUnavailable } from "../domain/ports/blob-store.ts";
import type { Stores, Transaction, WorkerRecord } from "../domain/ports/stores.ts";
import { releaseDeadHolds } from "../domain/realtime/holds.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";

/** The pause between two beats. */
export const BEAT_MS = 2000;
/** A worker that was not seen for this long is dead to the others. It begins no work later than that, by its own clock. */
export const TERM_MS = 7000;
const FRESH_MS = 0.7 * TERM_MS;
/**
 * A pause between two beats that means trouble with the database, or with its clock: then all records are old. After it
 * the others get as long to beat again, which takes them one beat and a second to find the database.
 */
const TROUBLE_MS = 2 * BEAT_MS;
const LONGEST_JOIN_MS = 60_000;

interface PresenceDeps {
  stores: Stores;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** The facts that a process shares with the others on its database. */
export interface PresenceFacts extends Pick<WorkerRecord, "role" | "version" | "providers"> {
  /** True when the file of the database is locked, so that no other process can use it. Nothing polls for others then. */
  isAlone: boolean;
}

/** The functions that the beats of a process call. */
interface Follower {
  /** Called after each beat. `areSomeGone`: workers have left or died since the last poll that succeeded. */
  poll(news: { areSomeGone: boolean }): Promise<void>;
  /** The others took this process for dead: whatever it is doing belongs to somebody else. */
  reset(): void;
  /** Whether somebody has asked this process, from outside, to begin no work. */
  setPaused(isPaused: boolean): unknown;
}

/**
 * Keeps the record by which other processes see that this one is alive. The record alone decides: a process that finds it
 * gone stops everything and joins again under another id, so that nothing that it began before can count.
 */
export class Presence {
  readonly isAlone: boolean;
  readonly #deps: PresenceDeps;
  readonly #facts: PresenceFacts;
  #id: string;
  #lost = lostSignal();
  /** The workers that were alive at the last beat. */
  #live: readonly WorkerRecord[] = [];
  /** Workers have left or died, and no poll has taken over their work yet. */
  #areSomeGone = false;
  /** When the last beat began, and when the first of those ended that came without trouble. */
  #beatMs = Number.NEGATIVE_INFINITY;
  #wellSinceMs = Number.NEGATIVE_INFINITY;
  #follower: Follower | null = null;

  constructor(deps: PresenceDeps, facts: PresenceFacts) {
    this.#deps = deps;
    this.#facts = facts;
    this.isAlone = facts.isAlone;
    this.#id = deps.ids.recordId("worker");
  }

  /** Changes when the others took this process for dead. */
  get id(): string {
    return this.#id;
  }

  /** Aborted when the others took the process for dead under its present id. With the next id comes another signal. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Whether work may begin. The others may soon take a process for dead that has not reached the database for long. */
  get isFresh(): boolean {
    return this.isAlone || this.#deps.clock.monotonicMs() - this.#beatMs < FRESH_MS;
  }

  /** Whether any process makes images, as of the last beat; false for a process that is alone. */
  get hasWorkers(): boolean {
    return !this.isAlone && this.#live.some(({ role }) => role !== "api");
  }

  /** Whether this is the one process that does what must be done once for all. */
  get isFirst(): boolean {
    return this.isAlone || this.#live.find(({ role }) => role !== "api")?.id === this.#id;
  }

  /** Whether images of a provider are made by this process, or by none that is alive. */
  isOurs(provider: string): boolean {
    if (this.#facts.providers.includes(provider)) return true;
    return !this.#live.some(({ providers }) => providers.includes(provider));
  }

  /** Every provider with which a process that is alive makes the images of batches. */
  get providers(): string[] {
    return [...new Set([...this.#facts.providers, ...this.#live.flatMap(({ providers }) => providers)])];
  }

  /** Begins to be alive. Waits for others that hold up the database, for a minute. */
  async join(): Promise<void> {
    const { stores, clock } = this.#deps;
    await this.#patiently(() => this.#enter());
    await this.#patiently(() => releaseDeadHolds(stores, clock.nowMs()));
  }

  async #enter(): Promise<void> {
    const { stores, clock } = this.#deps;
    const startMs = clock.monotonicMs();
    const { role, version, providers } = this.#facts;
    await stores.write(async (tx) => {
      if (this.isAlone) await tx.workers.removeAll();
      await this.#endStandstill(tx);
      // By a transaction whose answer was lost.
      await tx.workers.remove(this.#id);
      await tx.workers.insert({ id: this.#id, role, version, providers, isPaused: false });
    });
    this.#beatMs = startMs;
    this.#wellSinceMs = clock.monotonicMs();
    this.#live = await stores.read.workers.list();
  }

  /** Repeats work while others hold up the database, or end a commit without an answer, for a minute. */
  async #patiently(work: () => Promise<unknown>): Promise<void> {
    const { clock, log } = this.#deps;
    for (const startMs = clock.monotonicMs(); ; ) {
      try {
        await work();
        return;
      } catch (error) {
        const isHeldUp = error instanceof StorageUnavailable && error.reason === "busy";
        const mayPass = isHeldUp || StorageUnavailable.mayHaveHappened(error);
        if (!mayPass || clock.monotonicMs() - startMs > LONGEST_JOIN_MS) throw error;
        log.warn("the database cannot be used now; the start waits for it", { error: String(error) });
      }
    }
  }

  follow(follower: Follower): void {
    this.#follower = follower;
  }

  /** Beats until the signal is aborted. Looks do not hold up beats. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps;
    let polling: Promise<void> | null = null;
    while (!this.isAlone && !signal.aborted) {
      await clock.sleep(BEAT_MS, signal).catch(() => {});
      if (signal.aborted) break;
      try {
        await this.#beatAloud();
        polling ??= this.poll()
          .catch((error) => log.error("the work of others could not be looked at", { error: String(error) }))
          .finally(() => {
            polling = null;
          });
      } catch (error) {
        log.error("the database could not be told that this process is alive", { error: String(error) });
      }
    }
    await polling;
  }

  async #beatAloud(): Promise<void> {
    const { clock, log } = this.#deps;
    const answered = new AbortController();
    const late = () => log.warn("the database does not answer; no work begins until it does");
    clock.sleep(TROUBLE_MS, answered.signal).then(late, () => {});
    await this.beat().finally(() => answered.abort());
  }

  /** Says that this process is alive, and removes those that have not said so for too long. */
  async beat(): Promise<void> {
    const { stores, clock } = this.#deps;
    const before = this.#live;
    const startMs = clock.monotonicMs();
    // While the database is away, this write waits. The first process that reaches it again must not take the others for dead.
    const { isAlive, wasAway } = await stores.write(async (tx) => {
      await this.#endStandstill(tx);
      const seen = await tx.workers.beat(this.#id, TROUBLE_MS);
      const isWell = !seen.wasAway && clock.monotonicMs() - this.#wellSinceMs >= TROUBLE_MS;
      if (seen.isAlive && isWell) await tx.workers.removeSilent(this.#id, TERM_MS);
      return seen;
    });
    if (wasAway) this.#wellSinceMs = clock.monotonicMs();
    if (!isAlive) await this.#rejoin();
    else this.#beatMs = startMs;
    this.#live = await stores.read.workers.list();
    this.#follower?.setPaused(this.#live.some(({ id, isPaused }) => id === this.#id && isPaused));
    if (before.some(({ id }) => !this.#live.some((each) => each.id === id))) this.#areSomeGone = true;
  }

  /** A time in which no process made images is no outage of a provider. */
  async #endStandstill(tx: Transaction): Promise<void> {
    if (this.#facts.role === "api") return;
    const silenceMs = await tx.workers.silenceMs();
    if (silenceMs === null || silenceMs > TERM_MS) await tx.batches.endWaits();
  }

  /** Takes over what the dead have left. */
  async poll(): Promise<void> {
    const { stores, clock } = this.#deps;
    const areSomeGone = this.#areSomeGone;
    this.#areSomeGone = false;
    try {
      await releaseDeadHolds(stores, clock.nowMs());
      await this.#follower?.poll({ areSomeGone });
    } catch (error) {
      if (areSomeGone) this.#areSomeGone = true;
      throw error;
    }
  }

  /** Asks all processes to begin no work, or to begin work again; they follow with their next beat. */
  async setPaused(isPaused: boolean): Promise<void> {
    if (this.isAlone) return;
    const { stores, log } = this.#deps;
    await stores
      .write((tx) => tx.workers.setPaused(isPaused))
      .catch((error) => log.error("the pause could not be told to others", { error: String(error) }));
  }

  /** Is not alive any more: the others take over at once. */
  leave(): Promise<void> {
    return this.#deps.stores.write((tx) => tx.workers.remove(this.#id));
  }

  async #rejoin(): Promise<void> {
    const { ids, log } = this.#deps;
    log.warn("other processes took this one for dead; it begins anew", { worker: this.#id });
    this.#follower?.reset();
    this.#lost.abort();
    this.#lost = lostSignal();
    this.#id = ids.recordId("worker");
    await this.#enter();
  }
}

/** Any number of requests may listen to it. */
function lostSignal(): AbortController {
  const lost = new AbortController();
  setMaxListeners(0, lost.signal);
  return lost;
}
