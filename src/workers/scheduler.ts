import { EventEmitter, once } from "node:events";
import PQueue from "p-queue";
import { ImgbatchError } from "../contract/errors.ts";
import { type BatchStatus, isTerminal } from "../contract/statuses.ts";
import { askToCancel, cancelBatch, failBatch } from "../domain/batches/end-batch.ts";
import { failLeased, outputsPrefix, recordItemCall } from "../domain/batches/finish-item.ts";
import { hasItems } from "../domain/batches/lifecycle.ts";
import { inputsPrefix } from "../domain/batches/write-items.ts";
import { endJobs } from "../domain/jobs/job-rules.ts";
import { takeIn } from "../domain/jobs/take-in.ts";
import { DRAWINGS, identityOf, mayBePaidTwice, providerModel } from "../domain/models.ts";
import { StorageUnavailable } from "../domain/ports/blob-store.ts";
import type { Repositories } from "../domain/ports/stores.ts";
import type { BatchRecord } from "../domain/records.ts";
import { removeUnrecorded } from "../domain/retention.ts";
import { groupBy } from "../kernel/json.ts";
import { backoffMs, coalesced, createYield } from "../kernel/pacing.ts";
import { advanceBatch, becomeOwner, endOf, reportEnded } from "./advance-batch.ts";
import type { WorkerDeps } from "./deps.ts";
import { ItemPool } from "./items/item-pool.ts";
import { stoppedOutcome } from "./items/make-item.ts";
import { JobPool } from "./jobs/job-pool.ts";
import { type PoolEvents, type PoolLoad, Tasks, TROUBLE_DELAY_MS, type WorkerPool } from "./worker-pool.ts";

type Stored = Pick<WorkerDeps, "stores" | "blobs">;

/** A worker that was killed while it stored an image of a batch that had just stopped leaves a file without a row. */
const STOPPED_LATELY_MS = 24 * 3_600_000;
const STOPPED: readonly BatchStatus[] = ["failed", "cancelled", "output_deleted"];
/** The same of a worker that died beside others, which see that within seconds. */
const ENDED_LATELY_MS = 3_600_000;

/**
 * Cleans up for a process that is alone, before any work: an earlier one may have been killed. Gives back what that had
 * leased, and removes what no record names: half-written files, and images that were stored but not recorded (their
 * items are made again). Only batches that were at work, or were stopped in the last day, are checked: queued ones have no
 * image yet, and there can be thousands of them.
 */
async function recover(deps: WorkerDeps): Promise<void> {
  const leases = await releaseLeases(deps);
  const begun = await deps.stores.read.batches.withStatus(["running", "processing_results", "settling"]);
  const stopped = await deps.stores.read.batches.endedSince(deps.clock.nowMs() - STOPPED_LATELY_MS, STOPPED);
  let orphans = 0;
  for (const { id } of [...begun, ...stopped]) orphans += await removeOrphans(deps, id);
  await removeUnknown(deps, 0);
  const queued = (await deps.stores.read.batches.unfinishedByStatus()).queued ?? 0;
  if (begun.length + queued + orphans > 0) {
    deps.log.info("continuing after the last run", { batches: begun.length + queued, leases, orphans });
  }
}

/**
 * Gives back the items that workers had leased which are gone. A request to a paid upstream may have been sent for each, and
 * counts as one: see `WorkerDeps.unknownOutcome`. Nothing more is sent for a known task. Returns how many there were.
 */
export async function releaseLeases(deps: WorkerDeps): Promise<number> {
  const { items } = deps.stores.read;
  const batchIds = new Set((await items.abandoned()).map(({ batchId }) => batchId));
  let count = 0;
  for (const batchId of batchIds) count += await releaseLeasesOf(deps, batchId);
  return count;
}

function releaseLeasesOf(
  { stores, providers, clock, unknownOutcome }: WorkerDeps,
  batchId: string,
): Promise<number> {
  const free = new Set(providers.filter((provider) => !mayBePaidTwice(provider)).map(({ name }) => name));
  return stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    const abandoned = await tx.items.abandoned(batchId);
    for (const item of abandoned) {
      const { id, attempts, failedAt, usage, leaseToken } = item;
      if (batch === null || leaseToken === null) continue;
      // A provider that is not configured any more may have been paid.
      const isFree = item.provider === null || free.has(item.provider) || batch.upstream === DRAWINGS;
      const isUnknown = !isFree && item.task === null;
      const leased = { ...item, leaseToken };
      if (isUnknown && (unknownOutcome === "stop" || item.maybePaid === "twice")) {
        await failLeased(tx, batch, leased, stoppedOutcome(item), clock.nowMs());
        continue;
      }
      const maybePaid = isUnknown ? "once" : item.maybePaid;
      if (isUnknown) await recordItemCall(tx, batch, leased, { nowMs: clock.nowMs() });
      await tx.items.giveBack(id, leaseToken, { notBeforeMs: 0, attempts, failedAt, maybePaid, usage });
    }
    return abandoned.length;
  });
}

/**
 * Removes the images of batches that ended in the last hour and that no record names: a worker that is gone may have
 * stored them after the end. Asks the bucket for each batch, which takes long. Never rejects: retention removes the rest later.
 */
async function removeLateOrphans(deps: WorkerDeps): Promise<void> {
  const { stores, clock, log } = deps;
  const sinceMs = clock.nowMs() - ENDED_LATELY_MS;
  const ended = await stores.read.batches.endedSince(sinceMs, [...STOPPED, "completed"]).catch((error) => {
    log.warn("images that no record names could not be looked for", { error: String(error) });
    return [];
  });
  for (const { id } of ended) if (!deps.ending.aborted) await removeOrphansOf(deps, id);
}

/**
 * Removes the images of a batch that no record names. While the batch is at work, a worker may be about to record
 * them. Returns how many there were.
 */
async function removeOrphans(deps: Stored, batchId: string): Promise<number> {
  return removeUnnamed(deps, batchId, await deps.blobs.list(outputsPrefix(batchId)));
}

/** Removes those of the listed images of a batch that no record names. Returns how many there were. */
export async function removeUnnamed(
  { stores, blobs }: Stored,
  batchId: string,
  listed: readonly { key: string }[],
): Promise<number> {
  const known = new Set((await stores.read.outputs.ofBatch(batchId)).map(({ blobKey }) => blobKey));
  const orphans = listed.filter(({ key }) => !known.has(key));
  for (const { key } of orphans) await blobs.delete(key);
  return orphans.length;
}

/** The same for a batch that has ended, beside other processes. Retention removes the rest later. */
async function removeOrphansOf(deps: WorkerDeps, batch: string): Promise<void> {
  await removeOrphans(deps, batch).catch((error) => {
    deps.log.warn("images that no record names could not be removed", { batch, error: String(error) });
  });
}

/**
 * Removes what requests have stored that were never accepted: their process died before the commit. Younger things may be
 * those of requests that are being accepted by another process; a process that is alone takes 0 before its first request.
 * Returns how many files these were.
 */
export async function removeUnknown(deps: Stored, olderThanMs: number): Promise<number> {
  return (await removeUnknownInputs(deps, olderThanMs)) + (await removeUnrecorded(deps, olderThanMs));
}

async function removeUnknownInputs({ stores, blobs }: Stored, olderThanMs: number): Promise<number> {
  let removed = 0;
  for (const [id, inputs] of groupBy(await blobs.list("inputs/"), ({ key }) => key.split("/")[1] ?? "")) {
    const isOld = inputs.every(({ ageMs }) => ageMs >= olderThanMs);
    if (!isOld || (await stores.read.batches.byId(id)) !== null) continue;
    await blobs.deleteAll(`inputs/${id}/`);
    removed += inputs.length;
  }
  return removed;
}

/** Batches whose images are not made yet. */
const UNMADE: readonly BatchStatus[] = ["queued", "running"];

/**
 * Gives the batches whose provider no living process has configured to another one of the same type and address. Without
 * one they wait.
 */
async function handOver(deps: WorkerDeps): Promise<void> {
  const yieldSometimes = createYield(20);
  for (const batch of await deps.stores.read.batches.unmadeByOthers(
    deps.presence.providers,
    deps.goingOn.kind,
  )) {
    await handOverOne(deps, batch);
    await yieldSometimes();
  }
}

async function handOverOne(
  { providers, models, log, stores }: WorkerDeps,
  batch: BatchRecord,
): Promise<void> {
  const heir = providers.find(
    (provider) =>
      identityOf(provider) === batch.upstream && providerModel(provider, models, batch.model) !== null,
  );
  const facts = { batch: batch.id, from: batch.provider, to: heir?.name };
  if (!heir) return log.warn("the provider of a batch is not configured any more; the batch waits", facts);
  await stores.write(async (tx) => {
    if (!UNMADE.includes((await tx.batches.locked(batch.id))?.status ?? "completed")) return;
    await tx.batches.update(batch.id, { provider: heir.name });
  });
  log.warn("the provider of a batch is not configured any more; another one takes over", facts);
}

/** Inputs that are read at once: each may hold a large line in memory. */
const AT_ONCE = 2;
/** Pauses after a failure of the storage. */
const AGAIN = { baseMs: 5000, capMs: 300_000 };

/** Reads the inputs of batch jobs into items, few at a time. After a kill or a failure of the disk it begins again. */
export class Intake {
  readonly #deps: WorkerDeps;
  readonly #queue = new PQueue({ concurrency: AT_ONCE });
  readonly #stopping = new AbortController();
  /** How often in a row the storage has failed during the reading of a batch. */
  readonly #failures = new Map<string, number>();

  constructor(deps: WorkerDeps) {
    this.#deps = deps;
  }

  /**
   * Reads the input of a queued batch when it is the next one of its API key: large inputs of one key hold up no other.
   * Returns `queued` when its items are written, `failed` when it cannot be processed, and null, without any change, when
   * the service stops, while `isHeld`, or when the batch has moved on, or another input comes first.
   */
  async take(batch: BatchRecord, isHeld: () => boolean): Promise<BatchStatus | null> {
    const { stores, goingOn } = this.#deps;
    const isNext = (await stores.read.batches.unread(goingOn.kind)).some(({ id }) => id === batch.id);
    if (!isNext || !(await becomeOwner(this.#deps, batch.id))) return null;
    const read = () => this.#take(batch, () => this.#stopping.signal.aborted || isHeld());
    try {
      const status = await this.#queue.add(read);
      this.#failures.delete(batch.id);
      return status;
    } catch (error) {
      if (error instanceof StorageUnavailable) await this.#backOff(batch.id, error);
      throw error;
    }
  }

  /** Ends what is being read soon; the next start begins it again. */
  stop(): void {
    this.#stopping.abort();
  }

  /**
   * A disk that is full must not stay so because of what the reading has stored: the input, which alone is kept, is read from
   * the start again.
   */
  async #backOff(batchId: string, { reason }: StorageUnavailable): Promise<void> {
    const { clock, random, stores, presence } = this.#deps;
    const failures = (this.#failures.get(batchId) ?? 0) + 1;
    this.#failures.set(batchId, failures);
    const batch = await stores.read.batches.byId(batchId).catch(() => null);
    // After a commit whose outcome is not known, records may name the files.
    const isUnread = reason !== "unknown-commit" && batch !== null && !hasItems(batch);
    // Beside others, one of them may be reading it by now.
    if (isUnread && presence.isAlone) await this.#dropRead(batch).catch(() => {});
    await clock.sleep(backoffMs(failures, AGAIN, random), this.#stopping.signal).catch(() => {});
    const now = await stores.read.batches.byId(batchId).catch(() => batch);
    if (now?.status !== "queued") this.#failures.delete(batchId);
  }

  async #dropRead({ id, input }: BatchRecord): Promise<void> {
    const { blobs } = this.#deps;
    for (const { key } of await blobs.list(inputsPrefix(id)))
      if (key !== input?.blobKey) await blobs.delete(key);
  }

  async #take(batch: BatchRecord, isOver: () => boolean): Promise<BatchStatus | null> {
    const taken = isOver() ? null : await takeIn(this.#deps, batch, isOver);
    if (taken === null) {
      await this.#dropInputs(batch.id);
      return null;
    }
    const { feed } = this.#deps;
    if ("error" in taken) {
      const failed = await failBatch(this.#deps, batch.id, taken.error, () => endOf(this.#deps));
      await this.#dropInputs(batch.id);
      return failed && "failed";
    }
    for (const { customId, failed } of taken.items) {
      if (failed) feed.publish({ type: "item", batchId: batch.id, customId, status: "failed" });
    }
    return "queued";
  }

  /** Removes what was stored for a batch that has ended without items. Retention removes the rest later. */
  async #dropInputs(batchId: string): Promise<void> {
    const { stores, blobs } = this.#deps;
    const batch = await stores.read.batches.byId(batchId);
    if (batch === null || !isTerminal(batch.status) || hasItems(batch)) return;
    await blobs.deleteAll(inputsPrefix(batchId)).catch(() => {});
  }
}

type BegunBatch = Awaited<ReturnType<Repositories["batches"]["begun"]>>[number];

/**
 * Advances batches: their inputs, their results and their money. The pools make their images; any number of processes
 * make the items of a batch. All else is done by its owner.
 */
export class Scheduler {
  readonly #deps: WorkerDeps;
  readonly #pools: readonly WorkerPool[];
  readonly #jobs: ReadonlyMap<string, JobPool>;
  readonly #intake: Intake;
  /** Batches being advanced now. */
  readonly #advancing = new Map<string, { again: boolean; isUnwanted: boolean }>();
  /** Batches that are being cancelled: no other step may end them meanwhile. */
  readonly #cancelling = new Map<string, Promise<void>>();
  readonly #tasks = new Tasks();
  readonly #stopping = new AbortController();
  /** Emits the id of a batch that is being cancelled each time when its upstream could not be told to stop a job. */
  readonly #refusals = new EventEmitter().setMaxListeners(0);
  readonly #removeOrphans = coalesced(() => removeLateOrphans(this.#deps));
  readonly #readInputs = coalesced(() => this.#beginToReadInputs());
  #isRunning = false;
  #isPaused = false;

  constructor(deps: WorkerDeps) {
    this.#deps = deps;
    this.#intake = new Intake(deps);
    const events: PoolEvents = {
      onBatchIdle: (batchId) => this.wake(batchId),
      mayBegin: (batchId) => this.#mayBegin && (batchId === undefined || this.#mayBeginFor(batchId)),
    };
    deps.goingOn.onStopped((batchId) => {
      for (const pool of this.#pools) pool.remove(batchId);
      this.#wakePools();
    });
    deps.ending.addEventListener("abort", () => this.#wakePools(), { once: true });
    const jobProviders = deps.providers.filter((provider) => provider.kind === "job");
    this.#jobs = new Map(
      jobProviders.map((provider) => [provider.name, new JobPool(deps, provider, events)]),
    );
    this.#pools = [new ItemPool(deps, events), ...this.#jobs.values()];
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** The items and jobs that run now, and how many may run at once, over all providers. */
  get load(): PoolLoad & { isPaused: boolean } {
    const sum = (what: keyof PoolLoad) => this.#pools.reduce((all, { load }) => all + load[what], 0);
    return { running: sum("running"), paid: sum("paid"), slots: sum("slots"), isPaused: this.#isPaused };
  }

  /** Begins no work while paused, nor do other processes. Running work and requests go on. A restart ends the pause. */
  setPaused(isPaused: boolean): void {
    this.#pause(isPaused);
    this.#tasks.track(this.#deps.presence.setPaused(isPaused));
  }

  #pause(isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.#wakePools();
  }

  get #mayBegin(): boolean {
    const { ending, presence } = this.#deps;
    return this.#isRunning && !this.#isPaused && !ending.aborted && presence.isFresh;
  }

  #mayBeginFor(batchId: string): boolean {
    return !this.#cancelling.has(batchId) && this.#deps.goingOn.mayBegin(batchId);
  }

  #wakePools(): void {
    for (const pool of this.#pools) pool.wake();
  }

  /** Cleans up after a killed process, then goes on with its batches; later, when others hold up the database. */
  async start(): Promise<void> {
    const { presence } = this.#deps;
    if (presence.isAlone) await recover(this.#deps);
    this.#isRunning = true;
    presence.follow({
      poll: (news) => this.poll(news),
      reset: () => this.#reset(),
      setPaused: (isPaused) => isPaused !== this.#isPaused && this.#pause(isPaused),
    });
    const begin = async (): Promise<void> => {
      await handOver(this.#deps);
      await this.poll();
    };
    const later = (error: unknown) =>
      this.#later("no work could be looked for", { error: String(error) }, () => begin().catch(later));
    await (presence.isAlone ? begin() : begin().catch(later));
  }

  /**
   * Looks for work that has come without a call, by other processes, and forgets what has ended. `areSomeGone`: processes
   * have died or left, and what they did is taken over.
   */
  async poll({ areSomeGone = false }: { areSomeGone?: boolean } = {}): Promise<void> {
    if (!this.#isRunning) return;
    const { stores, presence, goingOn } = this.#deps;
    await releaseLeases(this.#deps);
    await this.#forgetEnded();
    for (const { id } of await stores.read.batches.cancelsAsked()) this.#beginToCancel(id);
    const yieldSometimes = createYield(20);
    for (const batch of await stores.read.batches.begun(goingOn.kind)) {
      if (this.#isRunning && this.#isForUs(batch)) this.#resume(batch);
      await yieldSometimes();
    }
    if (this.#isRunning) await this.#readInputs();
    for (const pool of this.#pools) await pool.poll(areSomeGone);
    if (!areSomeGone || !this.#isRunning) return;
    await handOver(this.#deps);
    this.#wakePools();
    if (presence.isFirst) this.#tasks.track(this.#removeOrphans());
  }

  /** Called when there may be something to do for a batch: it is new, or the last item in flight has ended. */
  wake(batchId: string): void {
    if (this.#isRunning && !this.#cancelling.has(batchId)) this.#beginToAdvance(batchId);
  }

  /**
   * Lets a batch go on, because somebody names it: see `GoingOn`. A batch that has ended, or is to be cancelled, stays as it is.
   */
  async goOn(batchId: string, isLease: boolean): Promise<void> {
    if (!(await this.#deps.goingOn.name(batchId, isLease)) || !this.#isRunning) return;
    await handOver(this.#deps);
    await this.poll();
    this.wake(batchId);
  }

  /**
   * Cancels a batch; an ended batch stays as it is. From now on nothing is begun for it, also after a restart. Requests that
   * have left for a paid upstream are awaited, as are its jobs, which are told to stop, and their images are kept. Other work
   * is stopped. Throws `BATCH_IMAGE_CANCEL_FAILED` when the job of an upstream could not be told: the batch is cancelled all
   * the same, and that of a paid upstream once the job has ended. Repeating the call tries the job again. `tellOthers` is called when the batch has stopped, and when it has ended.
   */
  cancel(batchId: string, tellOthers = () => {}): Promise<void> {
    const cancelling =
      this.#cancelling.get(batchId) ??
      this.#cancel(batchId, tellOthers).finally(() => this.#cancelling.delete(batchId));
    if (!this.#cancelling.has(batchId)) {
      this.#cancelling.set(batchId, cancelling);
      this.#tasks.track(cancelling.catch(() => {}));
    }
    const isOver = new AbortController();
    const refused = once(this.#refusals, batchId, { signal: isOver.signal }).then(([cause]) => {
      throw new ImgbatchError("BATCH_IMAGE_CANCEL_FAILED", undefined, { cause });
    });
    return Promise.race([cancelling, refused]).finally(() => isOver.abort());
  }

  /** Goes on with a cancellation that an earlier process, or another one, has begun. */
  #beginToCancel(batchId: string): void {
    if (this.#cancelling.has(batchId)) return;
    this.cancel(batchId).catch((error) => {
      const facts = { batch: batchId, error: String(error) };
      this.#later("a batch could not be cancelled", facts, () => this.#isRunning && void this.poll());
    });
  }

  async #cancel(batchId: string, tellOthers: () => void): Promise<void> {
    // What is checked before work begins is whether the batch is in the map.
    await Promise.resolve();
    const failed = await this.#cancelHeld(batchId, tellOthers).finally(tellOthers);
    if (failed) reportEnded(this.#deps.feed, batchId, "cancelled", failed);
    try {
      await Promise.all(this.#pools.map((pool) => pool.abort(batchId)));
    } finally {
      if (failed) await this.#end(batchId);
    }
  }

  /**
   * Ends the jobs of a batch at their upstream: what they have made is fetched, the rest fails, and then the batch ends.
   * Returns before that. Throws like `endJobs`. `tellOthers` is called once that is decided.
   */
  async endJobs(batchId: string, tellOthers = () => {}): Promise<void> {
    const { feed, clock } = this.#deps;
    const failed = await endJobs(this.#deps, batchId, clock.nowMs());
    tellOthers();
    for (const customId of failed) feed.publish({ type: "item", batchId, customId, status: "failed" });
    for (const pool of this.#jobs.values()) await pool.noticeStops(batchId);
    this.wake(batchId);
  }

  /** Reading back takes time. Meanwhile no item of the batch starts, and no step forward ends the batch first. */
  async #cancelHeld(batchId: string, tellOthers: () => void): Promise<string[] | null> {
    const { stores, clock, presence } = this.#deps;
    let failed: string[] | null = null;
    try {
      await askToCancel(stores, batchId, clock.nowMs());
      this.#wakePools();
      tellOthers();
      const onRefused = (cause: unknown) => void this.#refusals.emit(batchId, cause);
      await Promise.all(this.#pools.map((pool) => pool.settle(batchId, onRefused)));
      // The requests of other processes end with their answers, or with the death of their process.
      while (await stores.read.items.areLeasedBesides(batchId, presence.id))
        await presence.nextPoll(this.#stopping.signal);
      failed = await cancelBatch(this.#deps, batchId, () => endOf(this.#deps));
    } finally {
      if (failed === null) this.#cancelling.delete(batchId);
      if (failed === null) this.wake(batchId);
    }
    return failed;
  }

  /**
   * Takes no more work, gives running work `graceMs` to end, and keeps the rest for the next start. Requests that are
   * paid may take as long as they need, unless `isAbandoned`.
   */
  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#isRunning = false;
    this.#stopping.abort();
    this.#intake.stop();
    const stops = this.#pools.map((pool) => pool.stop(graceMs, isAbandoned));
    await Promise.all(stops);
    await this.#tasks.idle();
  }

  /** Whether a batch that has begun is for this process: images of items are made by all, the rest by its owner. */
  #isForUs({ provider, owner }: BegunBatch): boolean {
    const { presence } = this.#deps;
    return (owner === null || owner === presence.id) && presence.isOurs(provider);
  }

  #resume({ id, provider, status, isMade }: BegunBatch): void {
    const jobs = this.#jobs.get(provider);
    if (status !== "running" || isMade) this.wake(id);
    else if (jobs && !this.#cancelling.has(id)) jobs.resume(id);
  }

  async #beginToReadInputs(): Promise<void> {
    const { stores, goingOn } = this.#deps;
    try {
      for (const { id, provider } of await stores.read.batches.unread(goingOn.kind))
        if (this.#isRunning && this.#deps.presence.isOurs(provider) && !this.#advancing.has(id))
          this.wake(id);
    } catch (error) {
      this.#later("no input could be looked up", { error: String(error) }, () => this.#readInputs());
    }
  }

  async #read(batch: BatchRecord, isUnwanted: () => boolean): Promise<BatchStatus | null> {
    try {
      return await this.#intake.take(batch, isUnwanted);
    } finally {
      void this.#readInputs();
    }
  }

  /** Advances a batch. If it is being advanced already, it is advanced once more afterwards. */
  #beginToAdvance(batchId: string): void {
    const current = this.#advancing.get(batchId);
    if (current) {
      current.again = true;
      return;
    }
    const advancing = { again: false, isUnwanted: false };
    this.#advancing.set(batchId, advancing);
    const work = this.#advance(batchId, advancing).finally(() => {
      this.#advancing.delete(batchId);
      if (advancing.again) this.wake(batchId);
    });
    this.#tasks.track(work);
  }

  async #advance(batchId: string, advancing: { again: boolean; isUnwanted: boolean }): Promise<void> {
    const isHeld = () => this.#cancelling.has(batchId);
    try {
      // A cancelled batch has ended already: nobody wants its input.
      const isUnwanted = () => isHeld() || advancing.isUnwanted;
      const status = await advanceBatch(
        this.#deps,
        (batch) => this.#read(batch, isUnwanted),
        batchId,
        isUnwanted,
      );
      if (isHeld()) return;
      if (status === null) this.#forget(batchId);
      else if (isTerminal(status)) await this.#end(batchId);
      else this.#wakePools();
    } catch (error) {
      const facts = { batch: batchId, error: String(error) };
      this.#deps.log.error("batch could not be advanced; trying again", facts);
      await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
      advancing.again = true;
    }
  }

  /** A batch has ended here: images that no record names can only be those of processes that died. */
  async #end(batchId: string): Promise<void> {
    this.#forget(batchId);
    if (!this.#deps.presence.isAlone) await removeOrphansOf(this.#deps, batchId);
  }

  #forget(batchId: string): void {
    for (const pool of this.#pools) pool.remove(batchId);
    const advancing = this.#advancing.get(batchId);
    if (advancing) advancing.isUnwanted = true;
  }

  /** If another process has ended a batch, the reading of its input ends here, too. */
  async #forgetEnded(): Promise<void> {
    for (const batchId of [...this.#advancing.keys()]) {
      const batch = await this.#deps.stores.read.batches.byId(batchId);
      if (!this.#cancelling.has(batchId) && (batch === null || isTerminal(batch.status)))
        this.#forget(batchId);
    }
  }

  #reset(): void {
    for (const pool of this.#pools) pool.reset();
    for (const advancing of this.#advancing.values()) advancing.isUnwanted = true;
  }

  #later(trouble: string, facts: Record<string, unknown>, work: () => void): void {
    this.#deps.log.error(`${trouble}; trying again`, facts);
    this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).then(work, () => {});
  }
}
