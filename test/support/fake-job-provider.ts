import {
  type JobItem,
  type JobProvider,
  type JobResult,
  ProviderError,
  type UpstreamFacts,
  type UpstreamJob,
} from "../../src/domain/ports/image-provider.ts";
import { FakeUpstream, made, tinyPng } from "./fake-provider.ts";

export interface FakeJob {
  jobId: string;
  input: string;
  items: readonly JobItem[];
  model: string;
}

type Status = Partial<Pick<UpstreamJob, "state" | "said" | "refusal">>;

/** An upstream that takes jobs of many images. It outlives the services that talk to it, as a real one does. */
export class FakeJobProvider implements JobProvider {
  readonly kind = "job";
  readonly name: string;
  readonly concurrency: number;
  readonly limits: { images: number; bytes: number };
  readonly times = { pollMs: 10_000, jobMs: 24 * 3_600_000, lostMs: 600_000 };
  readonly upstream?: UpstreamFacts;
  splitsReferences = false;
  /** Uploaded inputs by their names. */
  readonly inputs = new Map<string, readonly JobItem[]>();
  /** The jobs that were created, by the upstream's name. */
  readonly jobs = new Map<string, FakeJob>();
  /** The names of the jobs that the list does not show yet. */
  readonly unlisted = new Set<string>();
  /** The upstream's names of the jobs that it was told to stop. */
  readonly cancelled: string[] = [];
  #uploads = 0;
  polls = 0;
  lists = 0;
  status: (upstreamName: string) => Status = () => ({ state: "succeeded" });
  resultOf: (item: JobItem) => Promise<JobResult | null> = async ({ key }) => ({
    key,
    output: made(await tinyPng()),
  });
  /** A job waits for this before it is created. */
  waitForRate: (signal: AbortSignal) => Promise<void> = async () => {};
  /** Runs before the upstream takes a job. */
  beforeCreate: () => void | Promise<void> = () => {};
  /** Runs after the upstream has taken a job; what it throws or waits for is how the answer gets lost or late. */
  afterCreate: () => void | Promise<void> = () => {};

  /** `isPaid`: an upstream with facts, whose images cost money; else it is like drawings. */
  constructor(
    options: { name?: string; concurrency?: number; images?: number; bytes?: number; isPaid?: boolean } = {},
  ) {
    const { name = "procedural", concurrency = 2, images = 100, bytes = 1e9, isPaid = false } = options;
    this.name = name;
    this.concurrency = concurrency;
    this.limits = { images, bytes };
    if (isPaid) this.upstream = new FakeUpstream(name, { type: "native-batch", uses: ["batches"] }).upstream;
  }

  serves(_model: string): boolean {
    return true;
  }

  async lineBytes({ request }: JobItem): Promise<number> {
    return request.prompt.length;
  }

  async upload(_jobId: string, items: readonly JobItem[], _signal?: AbortSignal): Promise<string> {
    const name = `input/${++this.#uploads}`;
    this.inputs.set(name, items);
    return name;
  }

  async create(
    { jobId, model, input }: { jobId: string; model: string; input: string },
    _signal?: AbortSignal,
  ): Promise<string> {
    await this.beforeCreate();
    const name = `upstream/${this.jobs.size + 1}`;
    this.jobs.set(name, { jobId, input, model, items: this.inputs.get(input) ?? [] });
    await this.afterCreate();
    return name;
  }

  async *list(_signal?: AbortSignal): AsyncGenerator<UpstreamJob> {
    this.lists++;
    for (const name of [...this.jobs.keys()].reverse()) if (!this.unlisted.has(name)) yield this.#shown(name);
  }

  async poll(upstreamName: string, _signal?: AbortSignal): Promise<UpstreamJob> {
    this.polls++;
    return this.#shown(upstreamName);
  }

  /** In reverse order: positions mean nothing. */
  async *results(upstreamName: string): AsyncGenerator<JobResult> {
    for (const item of [...(this.jobs.get(upstreamName)?.items ?? [])].reverse()) {
      const result = await this.resultOf(item);
      if (result) yield result;
    }
  }

  async cancel(upstreamName: string, _signal?: AbortSignal): Promise<void> {
    this.cancelled.push(upstreamName);
  }

  async discard(input: string): Promise<void> {
    this.inputs.delete(input);
  }

  async close(): Promise<void> {}

  #shown(name: string): UpstreamJob {
    const { jobId, input } = this.jobs.get(name) ?? { jobId: null, input: null };
    const isCancelled = this.cancelled.includes(name);
    const {
      state = "running",
      said = state,
      refusal = null,
    }: Status = isCancelled ? { state: "cancelled" } : this.status(name);
    return { name, jobId, input, createdAtMs: null, state, said, refusal };
  }
}

export const lostAnswer = () => new ProviderError("PROVIDER_TIMEOUT", "the answer was lost");
