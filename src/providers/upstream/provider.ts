import { keyProblemOf, secretVariables } from "../../contract/data-directory.ts";
import { tierOf } from "../../contract/image-formats.ts";
import type { JobEntry, UpstreamEntry } from "../../contract/provider-entries.ts";
import {
  type GeneratedImages,
  type ImageRequest,
  type ItemProvider,
  type JobProvider,
  type JobResult,
  type JobState,
  ProviderError,
  type UpstreamFacts,
  type UpstreamJob,
} from "../../domain/ports/image-provider.ts";
import { type Clock, callAfter } from "../../kernel/clock.ts";
import { hideUsedKeys, watchKey } from "../../kernel/hide-keys.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json.ts";
import { linkSignals, unlessAborted } from "../../kernel/signals.ts";
import type { AdapterDeps, UpstreamAdapter } from "./adapter.ts";
import { oneLine } from "./answer-json.ts";
import { ambiguous } from "./classify.ts";

/** The time limits of one image by tier, unless the entry has its own. */
const TIER_SECONDS = { "512": 120, "1K": 120, "2K": 180, "4K": 300 } as const;

/**
 * Makes a provider of an adapter: with time limits, a rate, the sizes and model ids of the entry, and without secrets in
 * errors. A secret that is not set disables the provider and nothing else.
 */
export function asItemProvider(
  entry: UpstreamEntry,
  adapter: UpstreamAdapter,
  deps: AdapterDeps,
): ItemProvider {
  const rate = new RequestRate(entry.requestsPerMinute, deps.clock);
  return {
    kind: "item",
    name: entry.name,
    concurrency: entry.concurrency,
    upstream: upstreamFacts(entry, adapter, deps),
    serves: (model) => modelFor(entry, model, model) !== null,
    generate: async (request, signal, onSent = () => {}, onAnswered = () => {}) => {
      await rate.wait(signal);
      return makeInTime(entry, adapter, deps, request, signal, { onSent, onAnswered });
    },
    close: () => adapter.close(),
  };
}

/** The facts of an upstream, from its entry and its adapter. */
function upstreamFacts(
  entry: UpstreamEntry,
  adapter: Pick<UpstreamAdapter, "address" | "takes" | "probe">,
  deps: AdapterDeps,
): UpstreamFacts {
  const secrets = secretVariables(entry).map((name) => ({ name, value: deps.secret(name) }));
  for (const { value } of secrets) if (value !== null) watchKey(value);
  const missing = secrets.filter(({ value }) => value === null).map(({ name }) => name);
  return {
    type: entry.type,
    identity: `${entry.type} ${adapter.address}`,
    fingerprint: sha256Hex(canonicalJson({ entry, secrets: secrets.map(({ value }) => value) })),
    isFree: entry.free,
    ...("idempotencyKey" in entry && entry.idempotencyKey !== null ? { isRepeatable: true } : {}),
    takes: adapter.takes,
    disabled:
      missing.length === 0
        ? keyProblemOf(entry, deps.secret)
        : `the environment variable ${missing.join(" and ")} is not set`,
    uses: entry.for,
    modelFor: (requested, executed) => modelFor(entry, requested, executed),
    probe: async (signal) => {
      try {
        await adapter.probe(signal);
      } catch (error) {
        throw withoutSecrets(error);
      }
    },
  };
}

/** Returns the upstream's id of a requested model; null when the entry does not serve it. */
export function modelFor({ models }: UpstreamEntry, requested: string, executed: string): string | null {
  if (Array.isArray(models)) {
    const isServed = models.includes("*") || models.includes(executed) || models.includes(requested);
    return isServed ? executed : null;
  }
  return Object.hasOwn(models, requested) ? (models[requested] ?? null) : null;
}

function makeInTime(
  entry: UpstreamEntry,
  adapter: UpstreamAdapter,
  { clock }: AdapterDeps,
  request: ImageRequest,
  signal: AbortSignal,
  { onSent, onAnswered }: { onSent(): void; onAnswered(bytes: number): void },
): Promise<GeneratedImages> {
  const seconds = entry.timeoutSeconds ?? TIER_SECONDS[tierOf(request.options.size)];
  let isSent = false;
  const late = () =>
    new ProviderError("PROVIDER_TIMEOUT", `${entry.name} did not answer within ${seconds} s.`, {
      trouble: isSent ? "ambiguous" : "unreachable",
    });
  const markSent = () => {
    isSent = true;
    onSent();
  };
  return withTimeLimit({ clock, ms: seconds * 1000, late }, signal, (inTime) => {
    const made = adapter.generate(request, inTime, markSent, onAnswered);
    // Nobody takes images that come too late.
    made.then(({ discard }) => (inTime.aborted ? discard?.() : undefined)).catch(() => {});
    return made;
  }).catch((error) => {
    signal.throwIfAborted();
    throw withoutSecrets(error);
  });
}

/** An upstream may repeat a key. Returns the error with all keys hidden, and without its cause. */
export function withoutSecrets(error: unknown): unknown {
  if (!(error instanceof ProviderError)) return error;
  return new ProviderError(error.code, hideUsedKeys(error.message), { ...error, cause: undefined });
}

const MINUTE_MS = 60_000;

/** Lets no more requests start in any minute than an upstream takes. */
export class RequestRate {
  readonly #perMinute: number | null;
  readonly #clock: Clock;
  /** When requests started and will start, in monotonic ms, the earliest first; without those that no longer count. */
  #starts: number[] = [];

  /** `perMinute` null sets no limit. */
  constructor(perMinute: number | null, clock: Clock) {
    this.#perMinute = perMinute;
    this.#clock = clock;
  }

  /**
   * Resolves when a request may start. Rejects with the signal's reason when aborted before: its place in the minute is
   * free again.
   */
  async wait(signal: AbortSignal): Promise<void> {
    if (this.#perMinute === null) return;
    const nowMs = this.#clock.monotonicMs();
    this.#starts = this.#starts.filter((ms) => ms > nowMs - MINUTE_MS);
    const before = this.#starts.at(-this.#perMinute);
    const startMs = before === undefined ? nowMs : before + MINUTE_MS;
    this.#starts = [...this.#starts, startMs].sort((a, b) => a - b);
    if (startMs <= nowMs) return;
    try {
      await this.#clock.sleep(startMs - nowMs, signal);
    } catch (error) {
      this.#starts.splice(this.#starts.indexOf(startMs), 1);
      throw error;
    }
  }
}

/**
 * Runs a call with a signal that also aborts when its time is over. Rejects with the reason of `signal` when that is
 * aborted, with `late()` when the time is over, else with the error of the call. When the time is over it does not wait for
 * the call, which goes on.
 */
export async function withTimeLimit<T>(
  { clock, ms, late }: { clock: Clock; ms: number; late: () => ProviderError },
  signal: AbortSignal,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const limit = callAfter(clock, ms, () => over.abort(late()));
  const linked = linkSignals(signal, over.signal);
  try {
    return await unlessAborted(call(linked.signal), over.signal);
  } catch (error) {
    signal.throwIfAborted();
    throw over.signal.aborted ? over.signal.reason : error;
  } finally {
    limit.stop();
    linked.unlink();
  }
}

/** The time limit of a call, unless the entry has its own. Results take as long as something comes. */
const CALL_SECONDS = 60;
const UPLOAD_SECONDS = 3600;

/** No account has this many pages of jobs. A list that never ends is broken. */
const MOST_PAGES = 1000;

interface JobPage {
  jobs: readonly UpstreamJob[];
  next: string | null;
}

/** A file with results. */
export interface ResultFile {
  /** Null when the upstream counts results and does not name the file. */
  name: string | null;
  /** How many results the upstream says that it has; null when it does not say. */
  results: number | null;
}

/** Translates between the port and one kind of upstream of jobs. Everything that all of them share is done around it. */
export interface JobAdapter
  extends Pick<UpstreamAdapter, "address" | "takes" | "probe" | "close">,
    Pick<JobProvider, "splitsReferences" | "lineBytes" | "upload" | "create" | "cancel" | "discard"> {
  /** Returns a page of the jobs, newest first, and the mark of the next page; null behind the last one. */
  page(mark: string | null, signal: AbortSignal): Promise<JobPage>;
  /** Returns a job as it is now, and the files with its results; null when the answer shows no job. */
  show(name: string, signal: AbortSignal): Promise<{ job: UpstreamJob; files: readonly ResultFile[] } | null>;
  /** Yields the results of one file of a job that asks for `model`. */
  read(file: string, model: string, signal: AbortSignal): AsyncIterable<JobResult>;
}

/** Makes a provider of an adapter: with time limits, a rate and model ids of the entry, and without secrets in errors. */
export function asJobProvider(entry: JobEntry, adapter: JobAdapter, deps: AdapterDeps): JobProvider {
  const { name } = entry;
  const { clock } = deps;
  const rate = new RequestRate(entry.requestsPerMinute, clock);
  const seconds = entry.timeoutSeconds ?? CALL_SECONDS;
  const lateAfter = (limit: number) => () =>
    new ProviderError("PROVIDER_TIMEOUT", `${name} did not answer within ${limit} s.`, {
      trouble: "ambiguous",
    });
  const inTime = <T>(
    signal: AbortSignal,
    send: (signal: AbortSignal) => Promise<T>,
    limit = seconds,
  ): Promise<T> => {
    const time = { clock, ms: limit * 1000, late: lateAfter(limit) };
    return withTimeLimit(time, signal, send).catch((error) => {
      signal.throwIfAborted();
      throw withoutSecrets(error);
    });
  };
  /** One call: within the rate and the time limit. */
  const call: typeof inTime = async (signal, send, limit) => {
    await rate.wait(signal);
    return inTime(signal, send, limit);
  };
  const show = async (job: string, signal: AbortSignal) => {
    const now = await call(signal, (limited) => adapter.show(job, limited));
    if (now === null) throw ambiguous(name, "HTTP 200 that shows no job", 200);
    return now;
  };
  return {
    kind: "job",
    name,
    concurrency: entry.concurrency,
    upstream: upstreamFacts(entry, adapter, deps),
    limits: { images: entry.jobImages, bytes: entry.jobBytes },
    times: {
      pollMs: entry.pollSeconds * 1000,
      jobMs: entry.jobHours * 3_600_000,
      lostMs: entry.lostJobMinutes * 60_000,
    },
    splitsReferences: adapter.splitsReferences,
    serves: (model) => modelFor(entry, model, model) !== null,
    lineBytes: async (item) => adapter.lineBytes(item),
    upload: (jobId, items, signal) =>
      call(signal, (limited) => adapter.upload(jobId, items, limited), UPLOAD_SECONDS),
    waitForRate: (signal) => rate.wait(signal),
    create: (job, signal) => inTime(signal, (limited) => adapter.create(job, limited)),
    async *list(signal) {
      let mark: string | null = null;
      const seen = new Set<string | null>();
      while (seen.size < MOST_PAGES && !seen.has(mark)) {
        seen.add(mark);
        const at: string | null = mark;
        const page: JobPage = await call<JobPage>(signal, (limited) => adapter.page(at, limited));
        for (const job of page.jobs) yield shown(job);
        mark = page.next;
        if (mark === null) return;
      }
      const what = seen.has(mark) ? "the same page of jobs again" : `more than ${MOST_PAGES} pages of jobs`;
      throw ambiguous(name, what, 200);
    },
    poll: async (job, signal) => shown((await show(job, signal)).job),
    async *results(job, model, signal) {
      const { job: now, files } = await show(job, signal);
      if (now.state === "running") yield { endsEarly: "the upstream shows the job before its end" };
      for (const file of now.state === "running" ? [] : files)
        yield* counted(
          file,
          file.name === null ? none() : withHiddenSecrets(adapter.read(file.name, model, signal)),
        );
    },
    cancel: (job, signal) => call(signal, (limited) => adapter.cancel(job, limited)),
    discard: (input, signal) => call(signal, (limited) => adapter.discard(input, limited)),
    close: () => adapter.close(),
  };
}

/** An upstream may repeat a key. */
function shown(job: UpstreamJob): UpstreamJob {
  const refusal = job.refusal ? (withoutSecrets(job.refusal) as ProviderError) : null;
  return { ...job, said: hideUsedKeys(job.said), refusal };
}

async function* none(): AsyncGenerator<JobResult> {}

/** The results of a file, and whether it has ended early. A connection that breaks may look like the end. */
async function* counted(
  { results: announced }: ResultFile,
  results: AsyncIterable<JobResult>,
): AsyncGenerator<JobResult> {
  let read = 0;
  for await (const result of results) {
    if (!("endsEarly" in result)) read++;
    yield result;
  }
  if (announced === null || read >= announced) return;
  yield { endsEarly: `a file of results has ${read} of the ${announced} that the upstream counts` };
}

async function* withHiddenSecrets(results: AsyncIterable<JobResult>): AsyncGenerator<JobResult> {
  try {
    for await (const result of results) {
      if ("error" in result) yield { ...result, error: withoutSecrets(result.error) as ProviderError };
      else yield result;
    }
  } catch (error) {
    throw withoutSecrets(error);
  }
}

/** The ends without results, in words for people. */
const ENDED: Partial<Record<JobState, string>> = {
  failed: "the upstream's job has failed",
  cancelled: "the upstream's job was cancelled there",
  expired: "the upstream's job has expired",
};

/** Returns a text for people about the state of a job: the upstream's `word` for it, or its end with the `reason`, if there is one. */
export function jobWords(provider: string, state: JobState, word: string, reason: string): string {
  const end = ENDED[state];
  return end ? `${provider}: ${end}${reason && `: ${reason}`}` : oneLine(word.slice(0, 100));
}
