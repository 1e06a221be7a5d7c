import PQueue from "p-queue";
import { ImgbatchError } from "../contract/errors.ts";
import { readEventStream } from "../contract/event-stream.ts";
import { routes } from "../contract/routes.ts";
import { type Http, isFromElsewhere } from "../http/http.ts";
import { mayPass } from "../http/retries.ts";
import type { Answer } from "../http/transport.ts";
import type { Clock } from "../kernel/clock.ts";
import { formatDuration } from "../kernel/durations.ts";
import { backoffMs } from "../kernel/pacing.ts";
import { linkSignals } from "../kernel/signals.ts";
import type { Batch } from "./answers.ts";
import { getBatch } from "./batches.ts";

/** Returns how long to wait before the next look, in ms. */
type PollSchedule = (elapsedMs: number, looks: number, random: () => number) => number;

const MINUTE_MS = 60_000;
/** A remote service is never asked at shorter intervals. */
export const SHORTEST_REMOTE_INTERVAL_MS = 10_000;

/** For a remote service: 10–15 s for two minutes, then 30 s, rising to 60 s between the tenth and thirtieth minute. */
const remoteSchedule: PollSchedule = (elapsedMs, _looks, random) => {
  if (elapsedMs < 2 * MINUTE_MS) return SHORTEST_REMOTE_INTERVAL_MS + random() * 5_000;
  const long = (elapsedMs - 10 * MINUTE_MS) / (20 * MINUTE_MS);
  return 30_000 + 30_000 * Math.min(1, Math.max(0, long));
};

/** For a service on this machine: 150 ms, rising to half a second. */
const localSchedule: PollSchedule = (_elapsedMs, looks) => Math.min(500, 150 * 1.25 ** looks);

/** The bounds of a `Retry-After`: zero must not cause a flood of requests, and a day must not stop the polling. */
const SHORTEST_ASKED_MS = { local: 100, remote: 1_000 };
const LONGEST_ASKED_MS = 60 * MINUTE_MS;

/** For how long polls may fail in a row, in ms without the pauses that the service asks for. */
const PATIENCE_MS = 8 * MINUTE_MS;
/** For how long polls may fail in a row whatever pauses the service asks for, unless a time limit ends them before. */
const MOST_PATIENCE_MS = 24 * 60 * MINUTE_MS;
/** The pauses after polls that failed. */
const BACKOFF = { baseMs: 1_000, capMs: 60_000 };

interface PollOptions {
  http: Http;
  clock: Clock;
  random: () => number;
  isLocal: boolean;
  /** When the batch was made: the schedule counts from then. Default now; a time in the future counts as now. */
  sinceMs?: number | null;
  /** Shared with the pollers of other batches of the service. */
  limiter?: PollLimiter;
  /** Ends a pause when the batch has changed. */
  changes?: Changes | null;
  /** A fixed interval in ms instead of the usual schedule. */
  intervalMs?: number | undefined;
  /** Its reason is thrown as it is: an interruption or a time limit. */
  signal?: AbortSignal | undefined;
  onLook?: (batch: Batch) => void;
  /** Called after a failure that may pass. Failures are waited out until `untilMs`. */
  onFailure?: (error: ImgbatchError, delayMs: number, untilMs: number) => void;
}

/**
 * Polls a batch until it has ended, and returns it. Temporary errors (network, 429, 502–504, pages that are not the
 * service's) are waited out. A `Retry-After` overrides the schedule. An unknown status is never the end.
 */
export async function pollUntilDone(id: string, options: PollOptions): Promise<Batch> {
  const { http, clock, random, signal, limiter } = options;
  const startMs = Math.min(options.sinceMs ?? Number.POSITIVE_INFINITY, clock.nowMs());
  const look = () => getBatch(http, id, { signal, maxRetries: 0, nowMs: clock.nowMs() });
  const schedule: PollSchedule =
    options.intervalMs === undefined
      ? options.isLocal
        ? localSchedule
        : remoteSchedule
      : () => options.intervalMs ?? 0;
  let failures = 0;
  let untilMs = 0;
  let latestMs = 0;
  for (let looks = 0; ; looks++) {
    let askedForMs: number | null;
    let delayMs: number;
    const usualMs = () => schedule(clock.nowMs() - startMs, looks, random);
    try {
      const { batch, retryAfterMs } = await (limiter === undefined ? look() : limiter.take(look, signal));
      options.onLook?.(batch);
      if (batch.isDone) return batch;
      failures = 0;
      askedForMs = withinReason(retryAfterMs, options.isLocal);
      delayMs = usualMs();
    } catch (error) {
      failures++;
      const isElsewhere = isFromElsewhere(error);
      if (!mayPass(error) && !isElsewhere) throw error;
      if (failures === 1) {
        untilMs = clock.nowMs() + PATIENCE_MS;
        latestMs = clock.nowMs() + MOST_PATIENCE_MS;
      }
      if (clock.nowMs() >= untilMs) throw isElsewhere ? notTheService(error) : error;
      askedForMs = withinReason(error.retryAfterMs ?? null, options.isLocal);
      delayMs = Math.max(usualMs(), backoffMs(failures, BACKOFF, random));
      untilMs = Math.min(untilMs + (askedForMs ?? 0), latestMs);
      options.onFailure?.(error, askedForMs ?? delayMs, untilMs);
    }
    if (askedForMs !== null) limiter?.keepQuiet(askedForMs);
    if (askedForMs === null && options.changes) await options.changes.sleep(id, delayMs, signal);
    else await clock.sleep(askedForMs ?? delayMs, signal);
  }
}

function notTheService(error: ImgbatchError): ImgbatchError {
  const message = `The answers keep coming from something that is not the service: ${error.message}`;
  const advice =
    "check whether this network asks for a sign-in, and check --base-url; then run the same command again";
  const { httpStatus, requestId } = error;
  return new ImgbatchError("BAD_RESPONSE", message, { advice, httpStatus, requestId, cause: error });
}

function withinReason(askedForMs: number | null, isLocal: boolean): number | null {
  if (askedForMs === null) return null;
  const shortestMs = SHORTEST_ASKED_MS[isLocal ? "local" : "remote"];
  return Math.min(LONGEST_ASKED_MS, Math.max(shortestMs, askedForMs));
}

/** Makes a signal that aborts with `TIMEOUT` after `limitMs`. Call `stop` when the work is over. */
export function deadline(clock: Clock, limitMs: number): { signal: AbortSignal; stop: () => void } {
  const over = new AbortController();
  const stopped = new AbortController();
  clock.sleep(limitMs, stopped.signal).then(
    () => over.abort(new ImgbatchError("TIMEOUT", `Timed out after ${formatDuration(limitMs)}.`)),
    () => {},
  );
  return { signal: over.signal, stop: () => stopped.abort() };
}

/** Returns a signal that aborts with `signal`, or with `TIMEOUT` after `limitMs`. Call `stop` when the work is over. */
export function timeLimit(
  { signal, clock }: { signal: AbortSignal; clock: Clock },
  limitMs: number | undefined,
): { signal: AbortSignal; stop: () => void } {
  if (limitMs === undefined) return { signal, stop: () => {} };
  const limit = deadline(clock, limitMs);
  return { signal: AbortSignal.any([signal, limit.signal]), stop: limit.stop };
}

/** How long a command waits for the end of a vendor's job, which may never come. */
export const JOB_PATIENCE_MS = 30_000;

/**
 * Waits for the end of a batch that is being cancelled: its service still awaits the paid requests that have left. Throws
 * `JOB_NOT_ENDED` when a vendor's job has not ended after 30 seconds.
 */
export async function untilCancelled(
  batch: Batch,
  { http, isLocal }: Pick<PollOptions, "http" | "isLocal">,
  { clock, signal = new AbortController().signal }: Pick<PollOptions, "clock" | "signal">,
): Promise<Batch> {
  if (batch.isDone) return batch;
  const limit = timeLimit({ signal, clock }, batch.isInJobs ? JOB_PATIENCE_MS : undefined);
  const waiting = { http, isLocal, clock, random: Math.random, signal: limit.signal };
  try {
    return await pollUntilDone(batch.id, waiting);
  } catch (error) {
    if (signal.aborted || !(error instanceof ImgbatchError) || error.code !== "TIMEOUT") throw error;
    const message = `${batch.provider} has not confirmed yet that the job of ${batch.id} has ended. Nothing more is sent, and it may bill what it makes.`;
    throw new ImgbatchError("JOB_NOT_ENDED", message, {
      advice: "run the same command again: it goes on, and fetches what the job has made",
    });
  } finally {
    limit.stop();
  }
}

/** Requests under way at once, and the pause between their starts: half of the usual limit of a key. */
const AT_ONCE = 4;
const GAP_MS = 200;

/**
 * Shared by the pollers of several batches of one service. Each poller keeps its own interval; together they stay below
 * the limit of the service. When the service asks one of them to wait, all wait.
 */
export class PollLimiter {
  readonly #clock: Clock;
  readonly #gapMs: number;
  readonly #queue = new PQueue({ concurrency: AT_ONCE });
  #nextMs = 0;
  #quietUntilMs = 0;

  constructor(clock: Clock, gapMs = GAP_MS) {
    this.#clock = clock;
    this.#gapMs = gapMs;
  }

  /** Lets no poller look for this time. */
  keepQuiet(ms: number): void {
    this.#quietUntilMs = Math.max(this.#quietUntilMs, this.#clock.nowMs() + ms);
  }

  /** Does the look as soon as the limit allows. Rejects with the signal's reason. */
  take<T>(look: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#queue.add(async () => {
      for (let waitMs = this.#waitMs(); waitMs > 0; waitMs = this.#waitMs())
        await this.#clock.sleep(waitMs, signal);
      signal?.throwIfAborted();
      this.#nextMs = this.#clock.nowMs() + this.#gapMs;
      return look();
    });
  }

  #waitMs(): number {
    return Math.max(this.#nextMs, this.#quietUntilMs) - this.#clock.nowMs();
  }
}

/** The shortest pause of a poller, however often its batch changes. */
const SHORTEST_SLEEP_MS = 1_000;

/** Learns from the events of a service which batches have changed, so that pollers need not wait for their next look. */
class Changes {
  readonly #clock: Clock;
  readonly #stopping = new AbortController();
  readonly #sleepers = new Map<string, () => void>();
  /** Batches with a poller. A service may report any number of others. */
  readonly #polled = new Set<string>();
  /** Batches that changed while their pollers could not be woken. */
  readonly #early = new Set<string>();

  /** A service without the stream, or one that breaks, costs nothing: then every sleep takes its time. */
  constructor(http: Http, clock: Clock) {
    this.#clock = clock;
    const { signal } = this.#stopping;
    followEvents(http, { clock, signal }, (_name, id) => id !== null && this.#note(id)).catch(() => {});
  }

  stop(): void {
    this.#stopping.abort();
  }

  /** Sleeps until the batch has changed, at least a second and at most `ms`. Rejects with the signal's reason. */
  async sleep(batchId: string, ms: number, signal?: AbortSignal): Promise<void> {
    this.#polled.add(batchId);
    const shortestMs = Math.min(ms, SHORTEST_SLEEP_MS);
    await this.#clock.sleep(shortestMs, signal);
    if (this.#early.delete(batchId)) return;
    const changed = new AbortController();
    const { signal: either, unlink } = linkSignals(changed.signal, ...(signal ? [signal] : []));
    this.#sleepers.set(batchId, () => changed.abort());
    try {
      await this.#clock.sleep(ms - shortestMs, either);
    } catch (error) {
      if (!changed.signal.aborted) throw error;
    } finally {
      this.#sleepers.delete(batchId);
      unlink();
    }
  }

  #note(batchId: string): void {
    const wake = this.#sleepers.get(batchId);
    if (wake) wake();
    else if (this.#polled.has(batchId)) this.#early.add(batchId);
  }
}

/** Follows a service elsewhere, whose pollers sleep long. Null for one on this machine, and for a fixed interval. */
export function followChanges(
  { http, isLocal }: { http: Http; isLocal: boolean },
  clock: Clock,
  intervalMs: number | undefined,
): Changes | null {
  return isLocal || intervalMs !== undefined ? null : new Changes(http, clock);
}

/** The pause before a stream that broke is opened again. */
const REOPEN_MS = 10_000;

/** Takes the name of an event, and the id of the batch that it is about. */
type EventListener = (name: string, batchId: string | null) => void;

/**
 * Passes the events of a service on until the signal aborts. A stream that breaks is opened again after ten seconds. Returns
 * for a service without the stream. Rejects with the signal's reason.
 */
export async function followEvents(
  http: Http,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
  onEvent: EventListener,
): Promise<void> {
  for (;;) {
    try {
      const request = { method: "GET", path: routes.events, maxRetries: 0, signal, isQuiet: true } as const;
      const isStream = await http.stream(
        async () => request,
        (response) => readEvents(response, onEvent),
      );
      if (!isStream) return;
    } catch (error) {
      // Without the stream it does not begin later either.
      if (!mayPass(error)) return;
    }
    await clock.sleep(REOPEN_MS, signal);
  }
}

/** Reads events to the end of a stream. Returns false for an answer that is none. */
async function readEvents(response: Answer, onEvent: EventListener): Promise<boolean> {
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return false;
  for await (const { name, id } of readEventStream(response.body)) if (name !== "") onEvent(name, id);
  return true;
}
