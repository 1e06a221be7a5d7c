import {
  type JobItem,
  type JobProvider,
  type JobResult,
  type JobStatus,
  ProviderError,
} from "../../src/domain/ports/image-provider.ts";
import { made, tinyPng } from "./fake-provider.ts";

/** An upstream that takes whole batches. It outlives the services that talk to it, as a real one does. */
export class FakeJobProvider implements JobProvider {
  readonly kind = "job";
  readonly name: string;
  readonly concurrency: number;
  readonly pollMs = 10_000;
  /** What was submitted, by the upstream's name. */
  readonly jobs = new Map<string, { jobId: string; items: JobItem[] }>();
  /** The upstream's names of the jobs that it was told to stop. */
  readonly cancelled: string[] = [];
  polls = 0;
  status: (upstreamName: string) => JobStatus = () => ({ state: "succeeded" });
  resultOf: (item: JobItem) => Promise<JobResult | null> = async ({ key }) => ({
    key,
    output: made(await tinyPng()),
  });
  /** Runs after the upstream has taken a job; what it throws or waits for is how the answer gets lost or late. */
  afterSubmit: () => void | Promise<void> = () => {};

  constructor(options: { name?: string; concurrency?: number } = {}) {
    this.name = options.name ?? "procedural";
    this.concurrency = options.concurrency ?? 2;
  }

  serves(_model: string): boolean {
    return true;
  }

  async submit(jobId: string, items: AsyncIterable<JobItem>): Promise<string> {
    const taken: JobItem[] = [];
    for await (const item of items) taken.push(item);
    const name = `upstream/${this.jobs.size + 1}`;
    this.jobs.set(name, { jobId, items: taken });
    await this.afterSubmit();
    return name;
  }

  async find(jobId: string): Promise<string | null> {
    return [...this.jobs].find(([, job]) => job.jobId === jobId)?.[0] ?? null;
  }

  async poll(upstreamName: string): Promise<JobStatus> {
    this.polls++;
    if (this.cancelled.includes(upstreamName))
      return { state: "cancelled", message: "the job was cancelled" };
    return this.status(upstreamName);
  }

  /** In reverse order: positions mean nothing. */
  async *results(upstreamName: string): AsyncIterable<JobResult> {
    for (const item of [...(this.jobs.get(upstreamName)?.items ?? [])].reverse()) {
      const result = await this.resultOf(item);
      if (result) yield result;
    }
  }

  async cancel(upstreamName: string): Promise<void> {
    this.cancelled.push(upstreamName);
  }

  async close(): Promise<void> {}
}

export const lostAnswer = () => new ProviderError("PROVIDER_TIMEOUT", "the answer was lost");
