import type { JobEntry } from "../../../contract/provider-entries.ts";
import {
  type JobProvider,
  type JobResult,
  ProviderError,
  type UpstreamJob,
} from "../../../domain/ports/image-provider.ts";
import { hideUsedKeys } from "../../../kernel/api-keys.ts";
import type { AdapterDeps, UpstreamAdapter } from "../adapter.ts";
import { modelFor, upstreamFacts, withoutSecrets } from "../item-provider.ts";
import { RequestRate } from "../request-rate.ts";
import { withTimeLimit } from "../time-limit.ts";

/** The time limit of a call, unless the entry has its own. Uploads and results take as long as they need. */
const CALL_SECONDS = 60;

/** No account has so many pages of jobs. A list that never ends is broken. */
const MOST_PAGES = 1000;

export interface JobPage {
  jobs: readonly UpstreamJob[];
  next: string | null;
}

/** Translates between the port and one kind of upstream of jobs. Everything that all of them share is done around it. */
export interface JobAdapter
  extends Pick<UpstreamAdapter, "address" | "takes" | "probe" | "close">,
    Pick<
      JobProvider,
      "splitsReferences" | "lineBytes" | "upload" | "create" | "poll" | "cancel" | "discard"
    > {
  /** Returns a page of the jobs, newest first, and the mark of the next page; null behind the last one. */
  page(mark: string | null, signal: AbortSignal): Promise<JobPage>;
  /** Returns the names of the files with the results of an ended job. */
  outputs(name: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Yields the results of one file. */
  read(file: string, signal: AbortSignal): AsyncIterable<JobResult>;
}

/** Makes a provider of an adapter: with time limits, a rate and model ids of the entry, and without secrets in errors. */
export function asJobProvider(entry: JobEntry, adapter: JobAdapter, deps: AdapterDeps): JobProvider {
  const { name } = entry;
  const { clock } = deps;
  const rate = new RequestRate(entry.requestsPerMinute, clock);
  const seconds = entry.timeoutSeconds ?? CALL_SECONDS;
  const late = () =>
    new ProviderError("PROVIDER_TIMEOUT", `${name} did not answer within ${seconds} s.`, {
      trouble: "ambiguous",
    });
  /** One short call: within the rate and the time limit. */
  const call = async <T>(signal: AbortSignal, send: (signal: AbortSignal) => Promise<T>): Promise<T> => {
    await rate.wait(signal);
    return withTimeLimit({ clock, ms: seconds * 1000, late }, signal, send).catch((error) => {
      signal.throwIfAborted();
      throw withoutSecrets(error);
    });
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
    lineBytes: (item) => adapter.lineBytes(item),
    upload: async (jobId, items, signal) => {
      await rate.wait(signal);
      return adapter.upload(jobId, items, signal).catch((error) => {
        throw withoutSecrets(error);
      });
    },
    create: (job, signal) => call(signal, (inTime) => adapter.create(job, inTime)),
    async *list(signal) {
      let mark: string | null = null;
      for (let pages = 0; pages < MOST_PAGES; pages++) {
        const at: string | null = mark;
        const page: JobPage = await call<JobPage>(signal, (inTime) => adapter.page(at, inTime));
        for (const job of page.jobs) yield shown(job);
        mark = page.next;
        if (mark === null) return;
      }
    },
    poll: async (job, signal) => shown(await call(signal, (inTime) => adapter.poll(job, inTime))),
    async *results(job, signal) {
      for (const file of await call(signal, (inTime) => adapter.outputs(job, inTime)))
        yield* withHiddenSecrets(adapter.read(file, signal));
    },
    cancel: (job, signal) => call(signal, (inTime) => adapter.cancel(job, inTime)),
    discard: (input, signal) => call(signal, (inTime) => adapter.discard(input, inTime)),
    close: () => adapter.close(),
  };
}

/** An upstream may repeat a key. */
function shown(job: UpstreamJob): UpstreamJob {
  return { ...job, said: hideUsedKeys(job.said) };
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
