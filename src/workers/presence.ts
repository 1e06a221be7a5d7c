import { EventEmitter, once, setMaxListeners } from "node:events";
import { StorageUnavailable } from "../domain/ports/blob-store.ts";
import type { Stores, Transaction, WorkerRecord } from "../domain/ports/stores.ts";
import { releaseDeadHolds } from "../domain/realtime/holds.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";

/** The pause between two heartbeats. */
export const HEARTBEAT_MS = 2000;
/** A worker that was not seen for this long is dead to the others. It begins no work later than that, by its own clock. */
export const TERM_MS = 7000;
const FRESH_MS = 0.7 * TERM_MS;
/**
 * A pause between two heartbeats that means an outage of the database, or a jump of its clock. The records of all processes are
 * old then, so none is declared dead yet: each gets the same time again to send a heartbeat.
 */
const TROUBLE_MS = 2 * HEARTBEAT_MS;
const LONGEST_JOIN_MS = 60_000;

interface PresenceDeps {
  stores: Stores;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** The facts that a process shares with the others on its database. */
export type PresenceFacts = Pick<WorkerRecord, "role" | "version" | "providers">;

/** This process, as others see it, and the others, as it sees them. */
export type Presence = Alone | Cluster;

/** The functions that the heartbeats of a process call. */
interface Follower {
  /** Called after each heartbeat. `areSomeGone`: workers have left or died since the last poll that succeeded. */
  poll(news: { areSomeGone: boolean }): Promise<void>;
  /** Other processes have declared this one dead, and may have taken its work. */
  reset(): void;
  /** Whether somebody has asked this process, from outside, to begin no work. */
  setPaused(isPaused: boolean): unknown;
}

/** A process that has its database for itself: the file is locked. */
export class Alone {
  readonly isAlone = true;
  readonly isFresh = true;
  readonly hasWorkers = false;
  readonly isFirst = true;
  readonly id: string;
  readonly lost = lostSignal().signal;
  readonly providers: readonly string[];
  readonly #deps: PresenceDeps;
  readonly #facts: PresenceFacts;

  constructor(deps: PresenceDeps, facts: PresenceFacts) {
    this.#deps = deps;
    this.#facts = facts;
    this.id = deps.ids.recordId("worker");
    this.providers = facts.providers;
  }

  isOurs(_provider: string): boolean {
    return true;
  }

  /** All others are dead. */
  join(): Promise<void> {
    return join(this.#deps, async () => {
      await this.#deps.stores.write((tx) => tx.workers.removeAll());
      await enter(this.#deps, this.id, this.#facts);
    });
  }

  follow(_follower: Follower): void {}

  async nextPoll(_signal: AbortSignal): Promise<void> {}

  async run(_signal: AbortSignal): Promise<void> {}

  async setPaused(_isPaused: boolean): Promise<void> {}

  leave(): Promise<void> {
    return leave(this.#deps, this.id);
  }
}

/**
 * A process beside others. Keeps the record by which they see that this one is alive. The record alone decides: a process
 * that finds it gone stops everything and joins again under another id, so that nothing that it began before can count.
 */
export class Cluster {
  /** Whether no other process can use the database. */
  readonly isAlone = false;
  readonly #deps: PresenceDeps;
  readonly #facts: PresenceFacts;
  #id: string;
  #lost = lostSignal();
  /** The workers that were alive at the last heartbeat. */
  #live: readonly WorkerRecord[] = [];
  /** Emits `poll` at the end of each poll. */
  readonly #polls = new EventEmitter().setMaxListeners(0);
  /** Workers have left or died, and no poll has taken over their work yet. */
  #areSomeGone = false;
  /** When the last heartbeat began, and when the first of those ended that came without trouble. */
  #heartbeatMs = Number.NEGATIVE_INFINITY;
  #healthySinceMs = Number.NEGATIVE_INFINITY;
  #follower: Follower | null = null;

  constructor(deps: PresenceDeps, facts: PresenceFacts) {
    this.#deps = deps;
    this.#facts = facts;
    this.#id = deps.ids.recordId("worker");
  }

  /** Changes when other processes have declared this one dead. */
  get id(): string {
    return this.#id;
  }

  /** Aborted when the others took the process for dead under its present id. With the next id comes another signal. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Whether work may begin. The others may soon take a process for dead that has not reached the database for long. */
  get isFresh(): boolean {
    return this.#deps.clock.monotonicMs() - this.#heartbeatMs < FRESH_MS;
  }

  /** Whether any process makes images, as of the last heartbeat. */
  get hasWorkers(): boolean {
    return this.#live.some(({ role }) => role !== "api");
  }

  /** Whether this is the one process that does what must be done once for all. */
  get isFirst(): boolean {
    return this.#live.find(({ role }) => role !== "api")?.id === this.#id;
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

  /** Registers this process. Retries for one minute while others keep the database locked. */
  join(): Promise<void> {
    return join(this.#deps, () => this.#enter());
  }

  async #enter(): Promise<void> {
    const { stores, clock } = this.#deps;
    const startMs = clock.monotonicMs();
    await enter(this.#deps, this.#id, this.#facts);
    this.#heartbeatMs = startMs;
    this.#healthySinceMs = clock.monotonicMs();
    this.#live = await stores.read.workers.list();
  }

  follow(follower: Follower): void {
    this.#follower = follower;
  }

  /** Sends heartbeats until the signal is aborted. Polls do not hold them up. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps;
    let polling: Promise<void> | null = null;
    while (!signal.aborted) {
      await clock.sleep(HEARTBEAT_MS, signal).catch(() => {});
      if (signal.aborted) break;
      try {
        await this.#heartbeatInTime();
        polling ??= this.poll()
          .catch((error) => log.error("the work of others could not be polled", { error: String(error) }))
          .finally(() => {
            polling = null;
          });
      } catch (error) {
        log.error("the database could not be told that this process is alive", { error: String(error) });
      }
    }
    await polling;
  }

  async #heartbeatInTime(): Promise<void> {
    const { clock, log } = this.#deps;
    const answered = new AbortController();
    const late = () => log.warn("the database does not answer; no work begins until it does");
    clock.sleep(TROUBLE_MS, answered.signal).then(late, () => {});
    await this.heartbeat().finally(() => answered.abort());
  }

  /** Says that this process is alive, and removes those that have not said so for too long. */
  async heartbeat(): Promise<void> {
    const { stores, clock } = this.#deps;
    const before = this.#live;
    const startMs = clock.monotonicMs();
    // While the database is away, this write waits. The first process that reaches it again must not take the others for dead.
    const { isAlive, wasAway } = await stores.write(async (tx) => {
      await endStandstill(tx, this.#facts);
      const seen = await tx.workers.heartbeat(this.#id, TROUBLE_MS);
      const isHealthy = !seen.wasAway && clock.monotonicMs() - this.#healthySinceMs >= TROUBLE_MS;
      if (seen.isAlive && isHealthy) await tx.workers.removeSilent(this.#id, TERM_MS);
      return seen;
    });
    if (wasAway) this.#healthySinceMs = clock.monotonicMs();
    if (!isAlive) await this.#rejoin();
    else this.#heartbeatMs = startMs;
    this.#live = await stores.read.workers.list();
    this.#follower?.setPaused(this.#live.some(({ id, isPaused }) => id === this.#id && isPaused));
    if (before.some(({ id }) => !this.#live.some((each) => each.id === id))) this.#areSomeGone = true;
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
    } finally {
      this.#polls.emit("poll");
    }
  }

  /** Resolves at the end of the next poll. Rejects when the signal is aborted. */
  async nextPoll(signal: AbortSignal): Promise<void> {
    await once(this.#polls, "poll", { signal });
  }

  /** Asks all processes to begin no work, or to begin work again; they follow with their next heartbeat. */
  async setPaused(isPaused: boolean): Promise<void> {
    const { stores, log } = this.#deps;
    await stores
      .write((tx) => tx.workers.setPaused(isPaused))
      .catch((error) => log.error("the pause could not be told to others", { error: String(error) }));
  }

  /** Is not alive any more: the others take over at once. */
  leave(): Promise<void> {
    return leave(this.#deps, this.#id);
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

/** Enters the database, and releases what the dead hold. Waits while others hold up the database, for a minute. */
async function join(deps: PresenceDeps, enterDatabase: () => Promise<void>): Promise<void> {
  const { stores, clock, log } = deps;
  const patiently = async (work: () => Promise<unknown>) => {
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
  };
  await patiently(enterDatabase);
  await patiently(() => releaseDeadHolds(stores, clock.nowMs()));
}

async function enter({ stores }: PresenceDeps, id: string, facts: PresenceFacts): Promise<void> {
  const { role, version, providers } = facts;
  await stores.write(async (tx) => {
    await endStandstill(tx, facts);
    // By a transaction whose answer was lost.
    await tx.workers.remove(id);
    await tx.workers.insert({ id, role, version, providers, isPaused: false });
  });
}

function leave({ stores }: PresenceDeps, id: string): Promise<void> {
  return stores.write((tx) => tx.workers.remove(id));
}

/** A time in which no process made images is no outage of a provider. */
async function endStandstill(tx: Transaction, { role }: PresenceFacts): Promise<void> {
  if (role === "api") return;
  const silenceMs = await tx.workers.silenceMs();
  if (silenceMs === null || silenceMs > TERM_MS) await tx.batches.endWaits();
}

/** Any number of requests may listen to it. */
function lostSignal(): AbortController {
  const lost = new AbortController();
  setMaxListeners(0, lost.signal);
  return lost;
}
