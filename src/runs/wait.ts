import { setMaxListeners } from "node:events";
import type { Batch } from "../client/answers.ts";
import { followChanges, PollLimiter, pollUntilDone } from "../client/poll.ts";
import type { ProviderIdentity } from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { RunEvent } from "../contract/events.ts";
import { isWaitingCode, named, saidLines, WAITING_CODES, waitingText } from "../contract/waiting.ts";
import type { Clock } from "../kernel/clock.ts";
import { formatDuration, momentText } from "../kernel/durations.ts";
import { counted, lowerFirst } from "../kernel/text.ts";
import { EMBEDDED, isOnThisMachine, type RunReporter, type RunService } from "./directory/run-service.ts";

interface PollOptions {
  service: RunService;
  clock: Clock;
  random: () => number;
  intervalMs?: number | undefined;
  signal?: AbortSignal | undefined;
  reporter: Pick<RunReporter, "event">;
  /** Lets stopped batches go on. Default: yes. */
  names?: boolean;
}

interface AwaitOptions extends PollOptions {
  reporter: RunReporter;
  /** The batches, by id, that make images of the others again. */
  retries?: ReadonlySet<string>;
  /** How many images of a batch, by its id, the run does not ask for any more. Default: none. */
  superseded?: ReadonlyMap<string, number>;
  /** Called with all batches each time a batch was read. */
  onLook?: ((states: readonly Batch[]) => void) | undefined;
}

/** Polls batches, and reports the progress of all. Otherwise like `pollBatches`. */
export async function awaitBatches(batches: readonly Batch[], options: AwaitOptions): Promise<Batch[]> {
  const { clock, reporter } = options;
  const progress = progressOf(batches, clock, options);
  const startMs = clock.nowMs();
  let lastSaid: string | null = null;
  return pollBatches(batches, options, {
    onLook: (states, look) => {
      const said = look.waiting?.said ?? lastSaid;
      if (said !== lastSaid) for (const line of saidLines(said)) reporter.note(line);
      lastSaid = said;
      reporter.progress(progress(states), startMs);
      options.onLook?.(states);
    },
    onFailure: (error, delayMs, untilMs) => {
      reporter.detail(`${error.message.replace(/\.?$/, ".")} Asking again in ${formatDuration(delayMs)}.`);
      reporter.progress(outageText(error, untilMs, clock.nowMs()), startMs);
    },
  });
}

/**
 * Polls until every batch has ended, and returns the ended batches. Each batch has its own schedule, which counts from
 * its creation. If one can no longer be polled, all polling stops. Throws like `parkedError`.
 */
export async function pollBatches(
  batches: readonly Batch[],
  options: PollOptions,
  on: {
    /** Called with all batches each time one of them, `look`, was read. */
    onLook(states: readonly Batch[], look: Batch): void;
    onFailure(error: ImgbatchError, delayMs: number, untilMs: number): void;
  },
): Promise<Batch[]> {
  const { service, clock, random, intervalMs, reporter, names = true } = options;
  const states = [...batches];
  const failed = new AbortController();
  const signal =
    options.signal === undefined ? failed.signal : AbortSignal.any([options.signal, failed.signal]);
  // Each batch has a listener or two, and there may be very many.
  setMaxListeners(0, signal);
  const isOne = batches.filter((batch) => !batch.isDone).length < 2;
  const changes = followChanges(service, clock, intervalMs);
  const limiter = new PollLimiter(clock, intervalMs === undefined ? undefined : 0);
  const awaitOne = async (batch: Batch, index: number) => {
    if (batch.isDone) return;
    try {
      await pollUntilDone(batch.id, {
        http: service.http,
        isLocal: service.isLocal,
        clock,
        random,
        intervalMs,
        sinceMs: batch.createdAtMs,
        changes,
        ...(isOne ? {} : { limiter }),
        signal,
        onLook: (seen) => {
          const isStopped = names && seen.waiting?.code === "STOPPED" && service.goOn !== undefined;
          if (isStopped) service.goOn?.(seen.id).catch(() => {});
          const look = isStopped ? { ...seen, waiting: null } : seen;
          if (hasChanged(states[index], look)) reporter.event?.(progressEvent(look));
          states[index] = look;
          on.onLook(states, look);
          const parked = parkedError(states, service, clock.nowMs());
          if (parked !== null) failed.abort(parked);
        },
        onFailure: (error, delayMs, untilMs) => {
          const { code, message } = error;
          reporter.event?.({ event: "retry", code, message, delay_ms: delayMs });
          on.onFailure(error, delayMs, untilMs);
        },
      });
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  };
  // The first failure is thrown after all polling has ended.
  const ends = await Promise.allSettled(batches.map(awaitOne));
  changes?.stop();
  options.signal?.throwIfAborted();
  if (failed.signal.aborted) throw failed.signal.reason;
  for (const end of ends) if (end.status === "rejected") throw end.reason;
  return states;
}

/** Whether a look at a batch shows another state than the look before. */
export function hasChanged(before: Batch | undefined, now: Batch): boolean {
  return (
    before === undefined ||
    before.status !== now.status ||
    before.successCount !== now.successCount ||
    before.failCount !== now.failCount ||
    before.waiting?.code !== now.waiting?.code ||
    before.waiting?.untilMs !== now.waiting?.untilMs
  );
}

function progressEvent(batch: Batch): RunEvent {
  const { waiting } = batch;
  return {
    event: "progress",
    batch_id: batch.id,
    item_count: batch.itemCount,
    status: batch.status,
    success_count: batch.successCount,
    fail_count: batch.failCount,
    waiting: waiting && {
      code: waiting.code,
      message: waiting.message,
      until: waiting.untilMs === null ? null : new Date(waiting.untilMs).toISOString(),
    },
  };
}

/**
 * Returns a function that describes the progress over all batches of a run: `12/200 images, 0 failed, 3.4/s, running, about 55 s left`. The
 * rate counts images since every batch was polled; earlier counts may be stale. The status is that of a running batch, else of one that has not ended; it says why batches wait. Batches
 * in `retries` make images of the others again; such an image counts once. An image that is superseded does not count.
 */
function progressOf(
  batches: readonly Batch[],
  clock: Clock,
  { retries = new Set(), superseded = new Map() }: CountOptions = {},
): (states: readonly Batch[]) => string {
  const unseen = batches.filter((batch) => !batch.isDone);
  let first: { doneCount: number; atMs: number } | null = null;
  return (states) => {
    const { successCount, failCount, total } = countsOf(states, retries, superseded);
    const doneCount = successCount + failCount;
    if (!unseen.some((batch) => states.includes(batch))) first ??= { doneCount, atMs: clock.nowMs() };
    const seconds = first === null ? 0 : (clock.nowMs() - first.atMs) / 1000;
    const rate = first !== null && seconds > 0 ? (doneCount - first.doneCount) / seconds : 0;
    const isCounted = states.every((batch) => batch.hasCounts);
    const status = statusOf(states, clock.nowMs());
    const parts = [
      ...(isCounted ? [`${successCount}/${total} images`, `${failCount} failed`] : []),
      ...(rate > 0 ? [`${rate.toFixed(1)}/s`] : []),
      ...(status === null ? [] : [status]),
      ...(rate > 0 && isWorking(states)
        ? [`about ${formatDuration(((total - doneCount) / rate) * 1000)} left`]
        : []),
    ];
    return parts.join(", ") || "ended";
  };
}

/** Describes a service that cannot be asked now: `no answer from http://… (connection refused); trying until 21:46:00`. */
export function outageText({ message }: Error, untilMs: number, nowMs = Date.now()): string {
  return `${lowerFirst(message).replace(/\.$/, "")}; trying until ${momentText(untilMs, nowMs)}`;
}

interface CountOptions {
  retries?: ReadonlySet<string>;
  superseded?: ReadonlyMap<string, number>;
}

/** Returns a batch without its superseded images. Which of them failed is not known here. */
function withoutSuperseded(batch: Batch, count: number): Batch {
  if (count === 0) return batch;
  const itemCount = Math.max(0, (batch.itemCount ?? 0) - count);
  const failCount = Math.min(batch.failCount, itemCount);
  return {
    ...batch,
    itemCount,
    failCount,
    successCount: Math.min(batch.successCount, itemCount - failCount),
  };
}

/** Counts images. One that is made again no longer counts as failed, or as a success if it was lost. */
function countsOf(
  batches: readonly Batch[],
  retries: ReadonlySet<string>,
  superseded: ReadonlyMap<string, number> = new Map(),
): { successCount: number; failCount: number; total: number } {
  const states = batches.map((batch) => withoutSuperseded(batch, superseded.get(batch.id) ?? 0));
  const sum = (value: (batch: Batch) => number) => states.reduce((total, batch) => total + value(batch), 0);
  const total = sum((batch) => batch.itemCount ?? 0);
  const again = sum((batch) => (retries.has(batch.id) ? (batch.itemCount ?? 0) : 0));
  const failed = sum((batch) => batch.failCount);
  const lost = Math.max(0, again - failed);
  return {
    successCount: Math.max(0, sum((batch) => batch.successCount) - lost),
    failCount: Math.max(0, failed - again),
    total: total - again,
  };
}

/** Whether images are still being made, and no batch waits for a provider. */
function isWorking(states: readonly Batch[]): boolean {
  const open = states.filter((batch) => !batch.isDone);
  return open.length > 0 && open.every((batch) => batch.waiting === null);
}

/** Null when all have ended. */
function statusOf(states: readonly Batch[], nowMs: number): string | null {
  const open = states.filter((batch) => !batch.isDone);
  const waiting = open.filter((batch) => batch.waiting !== null);
  const working = open.filter((batch) => batch.waiting === null && batch.status !== "queued");
  const telling = working.find((batch) => batch.status === "running") ?? working[0] ?? open[0];
  const status = telling ? statusText(telling) : null;
  const [first] = waiting;
  if (!first?.waiting) return status;
  const why = waitingText(first.waiting, nowMs);
  return working.length === 0 ? why : `${status}, ${counted(waiting.length, "batch", "batches")} ${why}`;
}

function statusText({ status, queuedBehind }: Batch): string {
  if (queuedBehind === null || queuedBehind === 0) return status.replaceAll("_", " ");
  return `waiting behind ${counted(queuedBehind, "other batch", "other batches")}`;
}

/** A command waits for no provider whose pause lasts longer than this. A pause of ten minutes may be seen a little later. */
const PATIENCE_MS = 9 * 60_000;

/**
 * Returns the error that ends a command because none of its batches can go on soon; null while one can. The embedded
 * service keeps the batches for the next command. A service elsewhere goes on by itself, so there a command keeps waiting.
 */
function parkedError(
  batches: readonly Batch[],
  {
    identity,
    readsConfiguration = true,
    providers = [],
  }: Pick<RunService, "identity" | "readsConfiguration" | "providers">,
  nowMs: number,
): ImgbatchError | null {
  if (identity !== EMBEDDED) return null;
  const open = batches.filter((batch) => !batch.isDone);
  const stuck = open.flatMap(({ provider, waiting }) => {
    if (waiting === null || waiting.code === "STOPPED" || waiting.code === "CANCELLING") return [];
    const { code, untilMs } = waiting;
    // Money and permissions need a person, however soon the next try is.
    const isPassing = !isWaitingCode(code) || WAITING_CODES[code] === "temporary";
    const isLong = !isPassing || untilMs === null || untilMs - nowMs > PATIENCE_MS;
    return isLong || isRefusedHere(waiting, providers) ? [{ provider, waiting }] : [];
  });
  const paused = new Set(stuck.map(({ provider }) => provider));
  // A batch that waits in line behind a stuck one of its provider cannot go on either.
  const queued = open.filter(({ status, provider }) => status === "queued" && paused.has(provider));
  const [first] = stuck.toSorted(
    (a, b) =>
      (a.waiting.untilMs ?? Number.POSITIVE_INFINITY) - (b.waiting.untilMs ?? Number.POSITIVE_INFINITY),
  );
  if (first === undefined || stuck.length + queued.length < open.length) return null;
  const { code, message, untilMs, said } = first.waiting;
  const isRefused = isRefusedHere(first.waiting, providers);
  const until =
    untilMs === null ? " until the configuration changes" : ` until ${momentText(untilMs, nowMs)}`;
  const [one] = open;
  const which = open.length === 1 ? `${one?.id} is` : `${open.length} batches are`;
  const why = code === "PROVIDER_NOT_CONFIGURED" && first.provider ? named(first.provider, message) : message;
  const restart =
    !readsConfiguration && untilMs === null
      ? " The service of another process reads a change when it starts again."
      : "";
  return new ImgbatchError(
    isWaitingCode(code) ? code : "PROVIDER_FAILING",
    `${which} parked${isRefused ? "" : until}. ${why}${restart}`,
    { details: saidLines(said) },
  );
}

/**
 * Whether the only upstream of a service is on this machine and refuses connections: its server does not run, and it does
 * not come back by itself.
 */
function isRefusedHere(
  { code, message }: NonNullable<Batch["waiting"]>,
  providers: readonly ProviderIdentity[],
): boolean {
  return code === "PROVIDER_UNREACHABLE" && refusingServer(message, providers) !== null;
}

/** Returns the upstream on this machine whose refused connection a message reports; null when there is none, or others are left. */
export function refusingServer(
  message: string,
  providers: readonly ProviderIdentity[],
): (ProviderIdentity & { address: string }) | null {
  const [only, ...others] = providers.filter(({ type }) => type !== "procedural");
  if (only === undefined || others.length > 0 || !message.includes("ECONNREFUSED")) return null;
  const { address } = only;
  return address !== null && isOnThisMachine(address) ? { ...only, address } : null;
}
