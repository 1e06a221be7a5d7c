import { join } from "node:path";
import { cacheDirectory } from "../config/paths.ts";
import type { Config } from "../config/schema.ts";
import { tierOf } from "../contract/image-formats.ts";
import { FIXED_LIMITS } from "../contract/limits.ts";
import { isTerminal } from "../contract/statuses.ts";
import type { Waiting } from "../contract/waiting.ts";
import { groupFinishes } from "../domain/batches/finish-item.ts";
import { EACH_ACCOUNT } from "../domain/billing/budget.ts";
import type { ServiceEvent } from "../domain/feed.ts";
import { Uploads } from "../domain/files/uploads.ts";
import { ProviderHealth } from "../domain/health/provider-health.ts";
import { waitingFor } from "../domain/health/waiting.ts";
import { isAtWork, showJob } from "../domain/jobs/job-rules.ts";
import { imagePriceUsd, Offers, providerModel } from "../domain/models.ts";
import type { ImageProvider, ItemProvider } from "../domain/ports/image-provider.ts";
import { holdForRecording } from "../domain/realtime/holds.ts";
import type { GoesOn } from "../domain/records.ts";
import { poolThreads, secretOf } from "../environment.ts";
import { Decoding } from "../imaging/decoding.ts";
import { sharpInspector } from "../imaging/sharp-images.ts";
import { fieldsOf } from "../kernel/json.ts";
import { multiplyToMicros, numberToMicros } from "../kernel/money.ts";
import { coalesced } from "../kernel/pacing.ts";
import { readVersion } from "../kernel/package-file.ts";
import { createProviders } from "../providers/registry.ts";
import type { ApiDeps } from "../server/deps.ts";
import { lineReaders } from "../server/surfaces.ts";
import { lockFile } from "../storage/data-lock.ts";
import type { Notices } from "../storage/dialects/postgres.ts";
import type { WorkerDeps } from "../workers/deps.ts";
import { GoingOn } from "../workers/going-on.ts";
import { Alone, Cluster, type PresenceFacts } from "../workers/presence.ts";
import { shareProviders } from "../workers/provider-slots.ts";
import { startRetention } from "../workers/retention-sweep.ts";
import { Scheduler } from "../workers/scheduler.ts";
import type { OpenStorage } from "./storage/open-storage.ts";

/** How long changes are gathered: a notice of each commit would hold up all of them, one behind the other. */
const GATHER_MS = 200;
/** How often the database is read while no notices arrive, and while they do: a killed process has not sent them all. */
const POLL_MS = 2000;
const LISTENING_POLL_MS = 15_000;
/** PostgreSQL takes a notice of less than 8000 bytes. The rest is for the name of the process. */
const BATCHES_BYTES = 7800;
const FAILURES_PER_BATCH = 3;
const LATEST = 100;

/** A poll reads all that is at work: a hundred notices a second must not become as many polls. */
const WORK_PAUSE_MS = 200;

/** The changes of a batch since the last notice. */
interface Change {
  images: number;
  /** The custom ids of the first items that failed. */
  failed: string[];
  isGone: boolean;
}

type Deps = Pick<WorkerDeps, "feed" | "stores" | "clock" | "log" | "ids">;

/**
 * Brings the changes that other processes make to the feed of this one, and the changes of this one to the others, before the
 * next heartbeat. By notices where they arrive, and by reading the database where they do not.
 */
export class SharedFeed {
  readonly #deps: Deps;
  /** Distinguishes its own notices from those of others. */
  readonly #from: string;
  readonly #notices: Notices | null;
  readonly #resumeProvider: (name: string) => unknown;
  readonly #changes = new Map<string, Change>();
  readonly #unsubscribe: () => void;
  readonly #timer: NodeJS.Timeout;
  /** The batches as they were at the last poll; null before. */
  #polled: Map<string, { state: string; images: number }> | null = null;
  #pollAtMs = 0;
  #isPolling = false;
  /** The events that are published now come from another process. */
  #isRepeating = false;

  /**
   * `listen` is null where there are no notices. `pollWork` looks for work that others have called for. `resumeProvider`
   * forgets the troubles of a provider that another process was told to ask again.
   */
  constructor(
    deps: Deps,
    listen: OpenStorage["listen"],
    { pollWork, resumeProvider }: { pollWork(): Promise<unknown>; resumeProvider(name: string): unknown },
  ) {
    this.#deps = deps;
    this.#resumeProvider = resumeProvider;
    this.#from = deps.ids.recordId("process");
    const poll = coalesced(async () => {
      await pollWork().catch((error) => {
        deps.log.error("the work of others could not be looked at", { error: String(error) });
      });
      await deps.clock.sleep(WORK_PAUSE_MS);
    });
    this.#notices = listen?.((text) => this.#read(text) && void poll()) ?? null;
    this.#unsubscribe = deps.feed.subscribe((event) => this.#note(event));
    this.#timer = setInterval(() => this.#tick(), GATHER_MS).unref();
  }

  /** Notifies the other processes at once that there is work for them, or that some of theirs has ended. */
  notifyWorkers(): void {
    this.#notices?.send(JSON.stringify({ from: this.#from, look: true }));
  }

  /** Lets the other processes ask a provider again at once. */
  notifyResume(name: string): void {
    this.#notices?.send(JSON.stringify({ from: this.#from, resume: name }));
  }

  /** The work that this process gave back is taken up at once. */
  async close(): Promise<void> {
    this.#unsubscribe();
    clearInterval(this.#timer);
    this.#flush();
    this.notifyWorkers();
    await this.#notices?.close();
  }

  /** Reads a notice. Returns whether it calls this process to look for work. */
  #read(text: string): boolean {
    const { from, look, batches, resume } = fieldsOf(parsed(text)) ?? {};
    if (from === this.#from) return false;
    if (typeof resume === "string") this.#resumeProvider(resume);
    for (const each of Array.isArray(batches) ? batches : []) {
      const { id, images = 0, failed = [], gone } = fieldsOf(each) ?? {};
      if (typeof id !== "string") continue;
      if (gone === true) this.#publish({ type: "batch-gone", batchId: id });
      else
        this.#publish({ type: "elsewhere", batchId: id, images: Number(images), failed: failed as string[] });
    }
    return look === true;
  }

  #publish(event: ServiceEvent): void {
    this.#isRepeating = true;
    this.#deps.feed.publish(event);
    this.#isRepeating = false;
  }

  #note(event: ServiceEvent): void {
    if (this.#isRepeating || event.type === "log" || event.type === "request" || event.type === "elsewhere")
      return;
    const { batchId } = event;
    const change = this.#changes.get(batchId) ?? { images: 0, failed: [], isGone: false };
    this.#changes.set(batchId, change);
    if (event.type === "batch-gone") change.isGone = true;
    if (event.type !== "item") return;
    if (event.status === "success") change.images++;
    if (event.status === "failed" && change.failed.length < FAILURES_PER_BATCH)
      change.failed.push(event.customId);
  }

  #tick(): void {
    this.#flush();
    const isListening = this.#notices?.isListening === true;
    const nowMs = this.#deps.clock.monotonicMs();
    if (this.#isPolling || nowMs - this.#pollAtMs < (isListening ? LISTENING_POLL_MS : POLL_MS)) return;
    this.#pollAtMs = nowMs;
    this.#isPolling = true;
    this.#poll(isListening)
      .catch((error) => this.#deps.log.warn("changes of others could not be read", { error: String(error) }))
      .finally(() => {
        this.#isPolling = false;
      });
  }

  #flush(): void {
    let batches: string[] = [];
    let bytes = 0;
    const send = () => {
      if (batches.length === 0) return;
      this.#notices?.send(`{"from":${JSON.stringify(this.#from)},"batches":[${batches.join()}]}`);
      batches = [];
      bytes = 0;
    };
    for (const [id, { images, failed, isGone }] of this.#changes) {
      const batch = JSON.stringify({
        id,
        ...(images > 0 ? { images } : {}),
        ...(failed.length > 0 ? { failed } : {}),
        ...(isGone ? { gone: true } : {}),
      });
      const batchBytes = Buffer.byteLength(batch) + 1;
      if (bytes + batchBytes > BATCHES_BYTES) send();
      batches.push(batch);
      bytes += batchBytes;
    }
    send();
    this.#changes.clear();
  }

  /** Publishes what differs from the last poll. Notices, where they arrive, have counted the images. */
  async #poll(isListening: boolean): Promise<void> {
    const { batches } = this.#deps.stores.read;
    const atWork = await batches.withStatus(["running", "processing_results", "settling"]);
    const found = [...atWork, ...(await batches.latest(LATEST))];
    const before = this.#polled ?? new Map();
    const now = new Map(
      found.map(({ id, status, successCount, failCount, waitingSinceMs }) => [
        id,
        { state: `${status} ${successCount} ${failCount} ${waitingSinceMs}`, images: successCount, status },
      ]),
    );
    const isFirst = this.#polled === null;
    this.#polled = now;
    for (const [batchId, { state, images, status }] of now) {
      const last = before.get(batchId);
      if (last?.state === state || (isFirst && isTerminal(status))) continue;
      const made = last === undefined || isListening ? 0 : Math.max(0, images - last.images);
      this.#publish({ type: "elsewhere", batchId, images: made, failed: [] });
    }
    for (const batchId of before.keys()) {
      if (now.has(batchId)) continue;
      const isThere = (await batches.byId(batchId))?.recordDeletedAtMs === null;
      if (isThere) this.#publish({ type: "elsewhere", batchId, images: 0, failed: [] });
      else this.#publish({ type: "batch-gone", batchId });
    }
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** How long images are kept where the configuration does not say: a command's own service also has those that no run has. */
const OUTPUT_HOURS: Record<Exclude<GoesOn, "no">, number> = { always: 72, "while-named": 30 * 24 };
/** Nobody waits longer for a command that has done its work. */
const LAST_SWEEP_MS = 1000;

interface WorkersOptions extends Pick<WorkerDeps, "clock" | "ids" | "random" | "feed" | "log" | "ending"> {
  config: Config;
  storage: Pick<OpenStorage, "stores" | "blobs" | "listen">;
  /** Default: those of the configuration are made. */
  providers?: readonly ImageProvider[] | undefined;
  /** The row by which other processes see this one. */
  presence: Pick<PresenceFacts, "role"> & { isAlone: boolean };
  /** Who works on the batches that are made here: see `GoingOn`. */
  goesOn: Exclude<GoesOn, "no">;
  /** See `ServiceOptions`. */
  recordingMicroUsd?: number | undefined;
  /** Aborted when the disk fails under the database: then nothing can be recorded. */
  failed: AbortSignal;
}

/** What makes images, and what the API needs of it. */
export interface Workers {
  deps: WorkerDeps;
  scheduler: Scheduler;
  /** As the configuration has them. */
  providers: readonly ImageProvider[];
  /** The offers of the providers that are used for real time. */
  realtimeOffers: Offers<ItemProvider>;
  decoding: Decoding;
  /** See `ApiDeps`. */
  resumeProvider(name: string): boolean;
  /** Notifies the workers of other processes. */
  notifyOthers(): void;
  /** Gives running work the time to end, then stops it. Also after a start that has failed. */
  close(graceMs: number): Promise<void>;
}

/**
 * Makes the providers with their health, joins the other processes, and, unless its role is `api`, begins to work on batches
 * and to delete what has expired.
 */
export async function openWorkers(options: WorkersOptions): Promise<Workers> {
  const { config, storage, clock, log, failed } = options;
  const { stores, blobs, listen } = storage;
  const { role, isAlone } = options.presence;
  const decoding = new Decoding(poolThreads());
  const providers =
    options.providers ??
    (await createProviders(config.providers, {
      clock,
      draft: () => blobs.draft(),
      simulate: config.simulate,
      decoding,
      secret: (name) => secretOf(name),
      recording: {
        leftMicroUsd: options.recordingMicroUsd ?? 0,
        queues: new Map(),
        hold: (request, provider, microUsd) =>
          holdForRecording(
            { stores, clock, ids: options.ids, worker: presence.id },
            request,
            provider,
            microUsd,
          ),
        priceOf: ({ model, options: { size, quality } }) => {
          const known = config.models.find(({ id }) => id === model);
          const usd = known && imagePriceUsd(known, tierOf(size), quality);
          return usd === undefined ? null : multiplyToMicros([usd]);
        },
        modelFor: (provider, requested) => providerModel(provider, config.models, requested),
        lock: (name, signal) => lockFile(join(cacheDirectory(), "recording", `${name}.lock`), clock, signal),
        log,
      },
    }));
  const shared = shareProviders(providers);
  const names = shared.forBatches.map(({ name }) => name);
  const presence = new (isAlone ? Alone : Cluster)(
    { ...options, stores },
    { role, version: readVersion(), providers: role === "api" ? [] : names },
  );
  const goingOn = new GoingOn({ stores, clock, log }, options.goesOn);
  const closing = new AbortController();
  let scheduler: Scheduler | null = null;
  let sharing: SharedFeed | null = null;
  let stopRetention: ReturnType<typeof startRetention> | null = null;
  const endsWithCommand = options.goesOn === "while-named";
  let heartbeat: Promise<void> | null = null;
  const close = (graceMs: number) =>
    runAll(
      () => stopRetention?.({ isUrgent: graceMs === 0 || failed.aborted }),
      () => goingOn.close(),
      // A process without workers may be telling upstreams to cancel.
      () => scheduler?.stop(graceMs, failed.aborted),
      () => sharing?.close(),
      async () => {
        closing.abort();
        if (heartbeat === null) return;
        await heartbeat;
        await presence
          .leave()
          .catch((error) => log.debug("a worker could not leave", { error: String(error) }));
      },
      ...providers.map((provider) => () => provider.close()),
    );
  try {
    const health = new ProviderHealth({ clock, log }, providers);
    const offersOf = <P extends ImageProvider>(some: readonly P[]) =>
      offersFor(config, some, health, providers);
    const inspector = sharpInspector(decoding);
    const deps: WorkerDeps = {
      stores,
      blobs,
      clock,
      log,
      inspector,
      health,
      presence,
      goingOn,
      ids: options.ids,
      random: options.random,
      feed: options.feed,
      ending: options.ending,
      finishes: groupFinishes(stores),
      limits: config.limits,
      lineReaders: lineReaders({ ...config, stores, blobs, inspector, clock }),
      models: config.models,
      providers: shared.forBatches,
      offers: offersOf(shared.forBatches),
      outageMs: config.limits.outageHours * HOUR_MS,
      unknownOutcome: config.limits.unknownOutcome,
      uploads: new Uploads({ stores, blobs, clock }, { ...FIXED_LIMITS, ...config.limits }),
      outputRetentionMs: (config.retention.outputHours ?? OUTPUT_HOURS[options.goesOn]) * HOUR_MS,
    };
    await presence.join();
    await keepBudget(deps, config);
    if (isAlone) await goingOn.start();
    heartbeat = presence.run(closing.signal);
    const own = new Scheduler(deps);
    scheduler = own;
    sharing = isAlone
      ? null
      : new SharedFeed(deps, listen, {
          pollWork: () => own.poll(),
          resumeProvider: (name) => health.resume(name),
        });
    if (role !== "api") {
      // An image library that does not load is reported now, and not with each image.
      await import("../imaging/sharp-config.ts");
      await own.start();
      const { inputHours, sweepMinutes } = config.retention;
      const pace = { inputRetentionMs: inputHours * HOUR_MS, everyMs: sweepMinutes * MINUTE_MS };
      const lastSweepMs = endsWithCommand ? LAST_SWEEP_MS : 0;
      stopRetention = startRetention(deps, { ...pace, lastSweepMs });
    }
    const realtimeOffers = offersOf(shared.forRealtime);
    const notifyOthers = () => sharing?.notifyWorkers();
    const resumeProvider = (name: string) => {
      sharing?.notifyResume(name);
      return health.resume(name);
    };
    return { deps, scheduler: own, providers, realtimeOffers, decoding, resumeProvider, notifyOthers, close };
  } catch (error) {
    await close(0).catch(() => {});
    throw error;
  }
}

/** Stores the budget of the configuration, which each account has, so that one rule holds for all processes. */
async function keepBudget({ stores }: Pick<WorkerDeps, "stores">, { limits }: Config): Promise<void> {
  const { budget } = limits;
  const kept = (await stores.read.budgets.list()).find(({ scope }) => scope === EACH_ACCOUNT);
  const wanted = budget && { limitMicroUsd: numberToMicros(budget.usd), per: budget.per };
  if (wanted === null && kept === undefined) return;
  if (wanted?.limitMicroUsd === kept?.limitMicroUsd && wanted?.per === kept?.per) return;
  const put = wanted && { scope: EACH_ACCOUNT, ...wanted };
  await stores.write((tx) => (put === null ? tx.budgets.remove(EACH_ACCOUNT) : tx.budgets.put(put)));
}

function offersFor<P extends ImageProvider>(
  { models, providers: entries }: Config,
  some: readonly P[],
  health: ProviderHealth,
  all: readonly ImageProvider[],
): Offers<P> {
  const rates = new Map(entries.map(({ name, rateMultiplier }) => [name, rateMultiplier]));
  return new Offers(
    some,
    models,
    rates,
    health,
    all.some(({ upstream }) => upstream !== undefined),
  );
}

/** Runs all steps in their order, also those after one that fails. Then throws the first error. */
export async function runAll(...steps: (() => unknown)[]): Promise<void> {
  const errors: unknown[] = [];
  for (const step of steps) {
    try {
      await step();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
}

/** `imgbatch` is on the path of most people; a program that shows the batch may know a better name. */
const stopped = (id: string): Waiting => ({
  code: "STOPPED",
  message: `go on with imgbatch wait ${id}, or give up with imgbatch cancel ${id}`,
  untilMs: null,
});

const CANCELLING: Waiting = {
  code: "CANCELLING",
  message: "requests that have left are awaited, and their images are kept",
  untilMs: null,
};

const NO_WORKERS: Waiting = {
  code: "NO_WORKERS",
  message: "The workers are not running.",
  untilMs: null,
};

/**
 * Reads from the database what the workers of all processes do. This process may have nothing to do with a batch. The
 * processes of a service have the same configuration.
 */
export function workOfAll(
  { stores, offers, health, providers, clock, goingOn }: WorkerDeps,
  lacksWorkers: () => boolean,
): Pick<ApiDeps, "waitingOf" | "jobsOf" | "isInJobs" | "queueOfAll"> {
  const slots = providers.reduce((sum, { concurrency }) => sum + concurrency, 0);
  const hasJobs = new Set(providers.flatMap(({ kind, name }) => (kind === "job" ? [name] : [])));
  return {
    waitingOf: (batch) => {
      const { status, waitingSinceMs, waiting } = batch;
      if (!isTerminal(status) && batch.cancelAskedAtMs !== null) return CANCELLING;
      if (!isTerminal(status) && !goingOn.includes(batch)) return stopped(batch.id);
      if (!isTerminal(status) && lacksWorkers()) return NO_WORKERS;
      // A job may be at work at an upstream that cannot be asked for it.
      const mayWait = waitingSinceMs !== null || (status === "running" && hasJobs.has(batch.provider));
      if (isTerminal(status) || !mayWait) return null;
      const able = offers.forBatch(batch);
      const known = waitingFor(able.map((each) => health.blockOf(each.provider, each.executedModel)));
      if (known !== null) return known;
      const isOver =
        waitingSinceMs === null || (waiting?.untilMs ?? Number.POSITIVE_INFINITY) <= clock.nowMs();
      return isOver ? null : waiting;
    },
    isInJobs: ({ provider, source }) => source === "batch" && hasJobs.has(provider),
    jobsOf: async (batch) => {
      if (isTerminal(batch.status) || !hasJobs.has(batch.provider)) return [];
      const jobs = await stores.read.upstreamJobs.ofBatch(batch.id);
      return jobs.filter(isAtWork).map(showJob);
    },
    queueOfAll: async () => {
      const workers = (await stores.read.workers.list()).filter(({ role }) => role !== "api");
      const slotsOfAll = slots * workers.length;
      return {
        // An item is claimed before it has a slot.
        running: Math.min(await stores.read.items.countLeased(), slotsOfAll),
        slots: slotsOfAll,
        isPaused: workers.length > 0 && workers.every(({ isPaused }) => isPaused),
      };
    },
  };
}
