import type { JobEntry } from "../../contract/provider-entries.ts";
import {
  type JobProvider,
  type JobResult,
  type JobState,
  ProviderError,
  type UpstreamJob,
} from "../../domain/ports/image-provider.ts";
import { hideUsedKeys } from "../../kernel/hide-keys.ts";
import type { AdapterDeps, UpstreamAdapter } from "./adapter.ts";
import { ambiguous } from "./classify.ts";
import { oneLine } from "./error-facts.ts";
import { modelFor, RequestRate, upstreamFacts, withoutSecrets, withTimeLimit } from "./item-provider.ts";

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
