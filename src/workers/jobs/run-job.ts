import type PQueue from "p-queue";
import { addUsage, failItem, failLeased, finishItem } from "../../domain/batches/finish-item.ts";
import { EVERY_MODEL, type Permit } from "../../domain/health/provider-health.ts";
import { noteOutage, waitingOn } from "../../domain/health/waiting.ts";
import { failItemsOf } from "../../domain/jobs/job-rules.ts";
import { isPaid } from "../../domain/models.ts";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import {
  type JobItem,
  type JobProvider,
  type JobResult,
  ProviderError,
  type Trouble,
  type UpstreamJob,
} from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord, LeasedItem } from "../../domain/records.ts";
import { linkSignals, unlessAborted } from "../../kernel/signals.ts";
import { OwnerLost } from "../advance-batch.ts";
import type { WorkerDeps } from "../deps.ts";
import { buildImageRequest, inspectOutput } from "../image-request.ts";
import { TROUBLE_DELAY_MS } from "../worker-pool.ts";
import { isToClose, type JobAction, type JobEvent, type JobFacts, next, pauseAfterRefusal } from "./next.ts";

/** A job may be in the upstream's list with an earlier time than ours: its clock may differ. */
const CLOCK_SLACK_MS = 3_600_000;
/** How long the request may take that stops a job which was created too late. */
const STOP_MS = 30_000;

/** Who works on a job, and with what. */
interface JobRunner {
  deps: WorkerDeps;
  provider: JobProvider;
  jobId: string;
  signal: AbortSignal;
}

/** A run of a job at work, in this process. What is known of the job stands in its row. */
export interface JobRun extends JobRunner {
  /** Its writes fail once another process owns the batch. */
  deps: WorkerDeps;
  batch: BatchRecord;
  /** The model that the upstream runs. */
  model: string;
  /** One upload and one download run at once: each holds parts of images in memory. */
  uploads: PQueue;
  downloads: PQueue;
  /** Ends the run. The job itself goes on upstream. */
  controller: AbortController;
  /** Ends a request that creates a job. Its answer is lost then. */
  abandoned: AbortSignal;
  /** Ends the wait that is under way, or the next one. */
  changed: AbortController;
  /** The row by which the action was chosen that is under way. */
  row: UpstreamJobRecord | null;
  /** Why the upstream could not be told to stop the job; null when it was told, or need not be. */
  stopRefusal: unknown;
  /** Called each time the upstream refuses to stop the job. The job still runs then. */
  onStopRefused(cause: unknown): void;
  /** Called when items went back to their batch, which then needs another job. */
  onReleased(): void;
  /** A request to create it is under way. */
  isCreating: boolean;
}

/**
 * Takes an upstream job through its table (`next`) until none of its items is pending. Continues where an earlier process
 * stopped. Rejects with the signal's reason when aborted; the job goes on upstream.
 */
export async function runJob(run: JobRun): Promise<void> {
  let event: JobEvent = { type: "resumed" };
  for (;;) {
    run.changed = new AbortController();
    const applied = await apply(run, event, { closes: false }).catch(async (error) => {
      if (error instanceof OwnerLost && event.type === "created") await stopLate(run, event.name);
      throw error;
    });
    if (applied === null) return;
    run.signal.throwIfAborted();
    run.row = applied.job;
    const done = await perform(run, applied.job, applied.action);
    if (done === null) return;
    event = done;
  }
}

/**
 * Removes what a job left behind at the upstream, as far as that is possible now: see `next`. Does nothing for a job that is
 * still needed. Returns whether nothing is left to do. Rejects when the upstream cannot be reached or refuses. Can be
 * repeated.
 */
export async function closeJob(runner: JobRunner): Promise<boolean> {
  const { deps, provider, jobId, signal } = runner;
  const job = await deps.stores.read.upstreamJobs.byId(jobId);
  const batch = job && (await deps.stores.read.batches.byId(job.batchId));
  if (!job || !batch || !isToClose(job, batch.status)) return true;
  let event: JobEvent = { type: "due" };
  for (;;) {
    const applied = await apply(runner, event, { closes: true });
    const action = applied?.action;
    switch (action?.do) {
      case "find":
        event = await find(provider, applied?.job ?? job, deps.clock.nowMs(), signal);
        break;
      case "close":
        event = await stopAndLook(provider, action.name, signal);
        break;
      case "discard":
        await discard(provider, applied?.job.input ?? "", signal);
        event = { type: "discarded" };
        break;
      case "wait":
        if (action.refusal) throw action.refusal;
        return false;
      default:
        return true;
    }
  }
}

/** Applies an event to the row of a job as it is now, and stores what follows. Returns null for a job without a row. */
async function apply(
  { deps, provider, jobId }: JobRunner,
  event: JobEvent,
  { closes }: Pick<JobFacts, "closes">,
): Promise<{ job: UpstreamJobRecord; action: JobAction } | null> {
  const { stores, clock, random, outageMs, unknownOutcome, goingOn, presence, ids, log, feed } = deps;
  const nowMs = clock.nowMs();
  const known = await stores.read.upstreamJobs.byId(jobId);
  if (known === null) return null;
  const applied = await stores.write(async (tx) => {
    const batch = await tx.batches.locked(known.batchId);
    const job = await tx.upstreamJobs.byId(jobId);
    if (batch === null || job === null) return null;
    const facts: JobFacts = {
      nowMs,
      status: batch.status,
      isCancelled: batch.cancelAskedAtMs !== null,
      goesOn: goingOn.includes(batch),
      hasPending: job.creates > 1 && (await tx.items.ofJob(jobId)).length > 0,
      closes,
      provider: provider.name,
      times: provider.times,
      isPaid: isPaid(provider),
      unknownOutcome,
      outageMs,
      random,
    };
    let { change, marks, action, failure, log: line } = next(job, event, facts);
    if (action.do === "wait" && action.block !== null) {
      // Every wait is written: whoever shows the batch reads the reason from its record.
      const { block, mayGiveUp } = action;
      const waiting = waitingOn(block);
      const outage = { batchId: batch.id, workerId: presence.id, nowMs, outageMs, waiting };
      const { sinceMs, isOver } = await noteOutage(tx, outage);
      if (mayGiveUp && isOver) {
        const end = next({ ...job, ...change }, { type: "outageOver", block }, facts);
        change = { ...change, ...end.change };
        marks = [...marks, ...end.marks];
        ({ action, failure } = end);
      } else if (mayGiveUp) action = { ...action, untilMs: Math.min(action.untilMs, sinceMs + outageMs) };
    } else if (change.step === "running" && batch.waitingSinceMs !== null)
      await tx.batches.update(batch.id, { waitingSinceMs: null });
    if (Object.keys(change).length > 0) await tx.upstreamJobs.update(jobId, change);
    for (const { to, from } of marks) await tx.items.markJob(jobId, to, from);
    const end = failure && { error: failure, nowMs, leaseToken: ids.leaseToken() };
    const failed = end ? await failItemsOf(tx, batch, jobId, end) : [];
    return { job: { ...job, ...change }, action, line, failed };
  });
  if (applied === null) return null;
  const { line, failed, job, action } = applied;
  if (line) log[line.level](line.message, { job: jobId });
  for (const customId of failed)
    feed.publish({ type: "item", batchId: job.batchId, customId, status: "failed" });
  return { job, action };
}

/** Does what is due for a job at work, and returns what came of it; null when there is nothing to do here. */
async function perform(run: JobRun, job: UpstreamJobRecord, action: JobAction): Promise<JobEvent | null> {
  const { provider, deps, signal } = run;
  switch (action.do) {
    case "upload":
      return upload(run, job);
    case "create":
      return create(run, job);
    case "find":
      return orFailure(run, () => find(provider, job, deps.clock.nowMs(), signal));
    case "stop":
      return stop(run, job);
    case "poll":
      return poll(run, job);
    case "fetch":
      return orFailure(run, async () => {
        const gone = (await run.downloads.add(() => fetchResults(run, job))) ?? null;
        if (gone !== null) deps.log.warn("the results of a job are not whole", { job: job.id, why: gone });
        return { type: "fetched", gone };
      });
    case "wait":
      await wait(run, action);
      return { type: "due" };
    default:
      return null;
  }
}

async function orFailure(run: JobRun, act: () => Promise<JobEvent>): Promise<JobEvent> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof ProviderError)) throw error;
    return failed(run, error);
  }
}

function failed({ deps, provider, model, jobId }: JobRun, error: ProviderError) {
  deps.log.warn("the upstream failed to serve a job; trying again", { job: jobId, error: error.message });
  return { type: "failed", error, block: deps.health.blockOf(provider, model) } as const;
}

/** Waits until an action is due, or until something has changed that may make it due. */
async function wait(
  { deps: { clock, health }, changed, signal }: JobRun,
  { untilMs, block }: Extract<JobAction, { do: "wait" }>,
): Promise<void> {
  const stopListening = block === null ? () => {} : health.onChange(() => changed.abort());
  const { signal: either, unlink } = linkSignals(signal, changed.signal);
  try {
    await clock.sleep(Math.max(1, untilMs - clock.nowMs()), either).catch(() => {});
  } finally {
    stopListening();
    unlink();
  }
  signal.throwIfAborted();
}

/** Uploads the input of a job. An item that cannot be built fails alone; what does not fit goes back to the batch. */
async function upload(run: JobRun, job: UpstreamJobRecord): Promise<JobEvent> {
  const { deps, provider, jobId, model, signal, uploads } = run;
  const items = await buildItems(run);
  if (items.length === 0) return { type: "nothingToUpload" };
  const permit = deps.health.begin(provider, model);
  if (permit === null) return { type: "blocked", block: deps.health.blockOf(provider, model) };
  try {
    // The upstream may have forgotten it.
    if (job.input !== null) await provider.discard(job.input, signal).catch(() => {});
    const input = await uploads.add(() => provider.upload(jobId, items, signal));
    permit.succeeded();
    return { type: "uploaded", input, hasReferences: hasAny(items[0]) };
  } catch (error) {
    if (error instanceof ProviderError) permit.failed(error, jobId);
    else permit.dropped();
    if (!(error instanceof ProviderError)) throw error;
    return failed(run, error);
  }
}

const hasAny = (item: JobItem | undefined) => (item?.request.references.length ?? 0) > 0;

/** The requests of the job's items, as many as fit. Only their texts are in memory. */
async function buildItems(run: JobRun): Promise<JobItem[]> {
  const { deps, provider, batch, jobId, model } = run;
  const items: JobItem[] = [];
  const others: number[] = [];
  let bytes = 0;
  for (const item of await deps.stores.read.items.ofJob(jobId)) {
    try {
      const references = await deps.stores.read.references.ofSource(item.batchId, item.sourceIndex);
      const request = await buildImageRequest(
        deps,
        batch,
        item,
        { provider, executedModel: model },
        references,
      );
      const line = { key: item.customId, request };
      const sum = bytes + (await provider.lineBytes(line));
      const fits = items.length === 0 || sum <= provider.limits.bytes;
      if (!fits || (provider.splitsReferences && items[0] && hasAny(items[0]) !== hasAny(line))) {
        others.push(item.id);
        continue;
      }
      bytes = sum;
      items.push(line);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      await failUnbuilt(run, item, error);
    }
  }
  if (others.length > 0) {
    await deps.stores.write(async (tx) => {
      await tx.lock("batch", batch.id);
      await tx.items.releaseFromJob(others);
    });
    run.onReleased();
  }
  return items;
}

async function failUnbuilt({ deps, batch, jobId }: JobRun, item: ItemRecord, error: ProviderError) {
  const { stores, ids, clock, feed } = deps;
  const leaseToken = ids.leaseToken();
  const { isOurs } = await stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    await tx.items.leaseJob(jobId, leaseToken);
    return failLeased(tx, batch, { ...item, leaseToken }, error, clock.nowMs());
  });
  const { batchId, customId } = item;
  if (isOurs) feed.publish({ type: "item", batchId, customId, status: "failed" });
}

/**
 * Creates the job of an uploaded input once the upstream and its rate permit that. That the request is sent is stored
 * before. Returns null when nothing may be sent any more.
 */
async function create(run: JobRun, job: UpstreamJobRecord): Promise<JobEvent | null> {
  const { deps, provider, model, signal } = run;
  const permit = deps.health.begin(provider, model);
  if (permit === null) return { type: "blocked", block: deps.health.blockOf(provider, model) };
  const before = { creates: job.creates, sentAtMs: job.sentAtMs };
  let action: JobAction | undefined;
  try {
    await provider.waitForRate(signal);
    // The process is stopping, so nothing is sent any more. The next start sends the job.
    if (deps.ending.aborted) await unlessAborted(new Promise<never>(() => {}), signal);
    action = (await apply(run, { type: "mayCreate" }, { closes: false }))?.action;
  } catch (error) {
    permit.dropped();
    // Nothing was sent. With the mark, nobody would know that for a long time.
    if (StorageUnavailable.mayHaveHappened(error)) await takeBack(run, before);
    throw error;
  }
  if (action?.do === "send") return send(run, job, before, permit);
  permit.dropped();
  return action === undefined || action.do === "rest" ? null : { type: "due" };
}

type BeforeCreate = Pick<UpstreamJobRecord, "creates" | "sentAtMs">;

/** The only request that may cost something. A stop does not end it. */
async function send(
  run: JobRun,
  { input, hasReferences }: UpstreamJobRecord,
  before: BeforeCreate,
  permit: Permit,
): Promise<JobEvent> {
  const { deps, provider, jobId, model } = run;
  run.isCreating = true;
  try {
    const job = { jobId, model, input: input ?? "", hasReferences };
    const name = await provider.create(job, run.abandoned);
    permit.succeeded();
    return { type: "created", name };
  } catch (error) {
    if (!(error instanceof ProviderError)) {
      permit.dropped();
      return { type: "createLost", why: String(error) };
    }
    permit.failed(error, jobId);
    return { type: "createFailed", before, error, block: deps.health.blockOf(provider, model) };
  } finally {
    run.isCreating = false;
  }
}

/** Takes back that a request was sent which was not. Repeats that until it is stored, or the run ends. */
async function takeBack(run: JobRun, before: BeforeCreate): Promise<void> {
  const { deps, signal } = run;
  while (!signal.aborted) {
    try {
      await apply(run, { type: "notSent", before }, { closes: false });
      return;
    } catch (error) {
      if (error instanceof OwnerLost) return;
      await deps.clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
    }
  }
}

/**
 * The answer came after another process had taken over. That one looks for the job, unless it has gone on without it: then
 * nobody else knows of it.
 */
async function stopLate({ deps, provider, jobId }: JobRun, name: string): Promise<void> {
  const job = await deps.stores.read.upstreamJobs.byId(jobId);
  if (job?.step === "sent" || job?.upstreamName === name || job?.endedNames.includes(name)) return;
  deps.log.warn("a job was created too late; the upstream is asked to stop it", { job: jobId, name });
  await provider.cancel(name, AbortSignal.timeout(STOP_MS));
}

/**
 * Looks through the upstream's list for a job that was created for this record and is not known yet: by our id or by its
 * input. Looks back to an hour before the record was made. Returns null when the list has none.
 */
async function findJob(
  provider: JobProvider,
  job: UpstreamJobRecord,
  signal: AbortSignal,
): Promise<UpstreamJob | null> {
  const known = new Set([job.upstreamName, ...job.endedNames]);
  for await (const each of provider.list(signal)) {
    if (each.createdAtMs !== null && each.createdAtMs < job.createdAtMs - CLOCK_SLACK_MS) return null;
    const isOurs = each.jobId === job.id || (each.input !== null && each.input === job.input);
    if (isOurs && !known.has(each.name)) return each;
  }
  return null;
}

/** Looks for a job in the upstream's list. */
async function find(
  provider: JobProvider,
  job: UpstreamJobRecord,
  sinceMs: number,
  signal: AbortSignal,
): Promise<JobEvent> {
  const found = await findJob(provider, job, signal);
  return found ? { type: "found", name: found.name } : { type: "notFound", sinceMs };
}

/** Asks the upstream to stop a job that is at work. */
async function stop(run: JobRun, job: UpstreamJobRecord): Promise<JobEvent> {
  const { deps, provider, jobId, signal } = run;
  try {
    await provider.cancel(job.upstreamName ?? "", signal);
    deps.log.warn("the upstream was asked to stop a job", { job: jobId });
    run.stopRefusal = null;
    return { type: "stopTold" };
  } catch (error) {
    signal.throwIfAborted();
    deps.log.warn("the upstream could not be asked to stop a job", { job: jobId, error: String(error) });
    run.stopRefusal = error;
    return { type: "stopRefused" };
  }
}

/** Of the errors of polling, only those of the credential count for the health of the provider. */
async function poll(run: JobRun, job: UpstreamJobRecord): Promise<JobEvent> {
  const { deps, provider, jobId, model, signal } = run;
  const block = deps.health.blockOf(provider, EVERY_MODEL);
  if (block !== null) return { type: "blocked", block };
  // Upstreams refuse to stop an ended job; then the refusal does not matter.
  const noteRefusal = () => run.stopRefusal !== null && run.onStopRefused(run.stopRefusal);
  let seen: UpstreamJob;
  try {
    seen = await provider.poll(job.upstreamName ?? "", signal);
    if (seen.state === "running") noteRefusal();
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof ProviderError)) throw error;
    noteRefusal();
    const permit = deps.health.begin(provider, EVERY_MODEL);
    if (error.trouble === null) permit?.dropped();
    else permit?.failed(error, "polling a job");
    deps.log.debug("a job could not be polled; trying again", { job: jobId, error: error.message });
    return { type: "failed", error, block: null };
  }
  const { refusal = null } = seen;
  if (refusal === null || job.stopAskedAtMs !== null) return { type: "polled", job: seen, block: null };
  const { code, message } = refusal;
  const retryAfterMs = pauseAfterRefusal(job, refusal, deps.random);
  const error = new ProviderError(code, message, { ...refusal, retryAfterMs });
  deps.health.begin(provider, model)?.failed(error, jobId);
  const nowBlocked = deps.health.blockOf(provider, model);
  return { type: "polled", job: { ...seen, refusal: error }, block: nowBlocked };
}

/** Stops a job that nobody needs, and sees what has become of it. */
async function stopAndLook(provider: JobProvider, name: string, signal: AbortSignal): Promise<JobEvent> {
  let refusal: unknown = null;
  await provider.cancel(name, signal).catch((error) => {
    refusal = error;
  });
  const seen = await provider.poll(name, signal).catch((error) => {
    if (error instanceof ProviderError && error.upstreamStatus === 404) return "missing" as const;
    refusal ??= error;
    return "unseen" as const;
  });
  return { type: "closeSeen", name, refusal, seen };
}

const FINAL: readonly (Trouble | null)[] = [null, "no-model", "forbidden"];

/** A refusal is final: the file does not exist any more, or cannot be deleted. */
async function discard(provider: JobProvider, input: string, signal: AbortSignal): Promise<void> {
  await provider.discard(input, signal).catch((error) => {
    const isFinal = error instanceof ProviderError && FINAL.includes(error.trouble);
    if (!isFinal) throw error;
  });
}

/** Returns why results are missing that the upstream has; null when there are none. */
async function fetchResults(run: JobRun, job: UpstreamJobRecord): Promise<string | null> {
  const { deps, provider, batch, model, jobId, signal } = run;
  const { stores, ids, log } = deps;
  const leaseToken = ids.leaseToken();
  const items = await stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    return tx.items.leaseJob(jobId, leaseToken);
  });
  const waiting = new Map(items.map((item) => [item.customId, { ...item, leaseToken }]));
  const seen = new Set<string>();
  let short: string | null = null;
  try {
    for await (const result of provider.results(job.upstreamName ?? "", model, signal)) {
      if ("unreadable" in result) {
        log.warn("a part of a job's results cannot be read", { job: jobId, why: result.unreadable });
        continue;
      }
      if ("endsEarly" in result) {
        short = result.endsEarly;
        continue;
      }
      // The job has ended before this request was run: it fails with the reason of the job.
      if ("error" in result && result.error.code === "RESULT_MISSING" && job.state !== "succeeded") continue;
      const { key } = result;
      const item = waiting.get(key);
      if (item && !seen.has(key)) await recordResult(run, item, result);
      else if (seen.has(key))
        log.warn("a job has two results for one item; the first counts", { job: jobId, key });
      else if ((await stores.read.items.byCustomId(batch.id, key))?.jobId !== jobId) {
        log.warn("a job has a result for an item that it was not given", { job: jobId, key });
        continue;
      }
      seen.add(key);
    }
  } finally {
    const results = Math.max(job.results, seen.size);
    await stores.write((tx) => tx.upstreamJobs.update(jobId, { results }));
  }
  const missing = [...waiting.keys()].filter((key) => !seen.has(key));
  if (missing.length > 0 && short !== null) return short;
  if (missing.length > 0 && job.state === "succeeded")
    log.warn("a job ended without results for some of its items", { job: jobId, missing: missing.length });
  return null;
}

/** How often an item is asked for in jobs whose upstream had no room or failed for it. */
const MOST_TRIES = 3;
/** What an upstream says of a request for which it made nothing, and which may succeed in another job. */
const NOT_MADE: readonly (Trouble | null)[] = ["limited", "failing"];

/** A result without a usable image is a failure of the item. */
async function recordResult(
  run: JobRun,
  item: LeasedItem,
  result: Extract<JobResult, { key: string }>,
): Promise<void> {
  const { deps, provider, batch, model } = run;
  const { stores, clock, feed } = deps;
  if ("error" in result && NOT_MADE.includes(result.error.trouble) && item.attempts + 1 < MOST_TRIES) {
    const usage = addUsage(item.usage, result.error.usage);
    const marks = { failedAt: null, maybePaid: "no" } as const;
    const again = { notBeforeMs: 0, attempts: item.attempts + 1, usage, ...marks };
    const { isOurs } = await stores.write(async (tx) => {
      await tx.lock("batch", batch.id);
      const given = await tx.items.giveBack(item.id, item.leaseToken, again);
      if (given.isOurs) await tx.items.releaseFromJob([item.id]);
      return given;
    });
    if (isOurs) run.onReleased();
    return;
  }
  const nowMs = () => clock.nowMs();
  let status: "success" | "failed" | null;
  try {
    if ("error" in result) throw result.error;
    const made = await inspectOutput(deps, { provider, executedModel: model }, item, result.output);
    status = await finishItem(deps, batch, item, made, nowMs);
  } catch (error) {
    if (!(error instanceof ProviderError)) throw error;
    status = await failItem(stores, batch, item, error, nowMs());
  }
  const { batchId, customId } = item;
  if (status) feed.publish({ type: "item", batchId, customId, status });
}
