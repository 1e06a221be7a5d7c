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
  readonly name = "procedural";
  readonly concurrency = 2;
  readonly pollMs = 10_000;
  /** What was submitted, by the upstream's name. */
  readonly jobs = new Map<string, { jobId: string; items: JobItem[] }>();
  polls = 0;
  status: () => JobStatus = () => ({ state: "succeeded" });
  resultOf: (item: JobItem) => Promise<JobResult | null> = async ({ key }) => ({
    key,
    output: made(await tinyPng()),
  });
  /** Runs after the upstream has taken a job; what it throws is how the answer gets lost. */
  afterSubmit: () => void = () => {};

  serves(): boolean {
    return true;
  }

  async submit(jobId: string, items: AsyncIterable<JobItem>): Promise<string> {
    const taken: JobItem[] = [];
    for await (const item of items) taken.push(item);
    const name = `upstream/${this.jobs.size + 1}`;
    this.jobs.set(name, { jobId, items: taken });
    this.afterSubmit();
    return name;
  }

  async find(jobId: string): Promise<string | null> {
    return [...this.jobs].find(([, job]) => job.jobId === jobId)?.[0] ?? null;
  }

  async poll(): Promise<JobStatus> {
    this.polls++;
    return this.status();
  }

  /** In reverse order: positions mean nothing. */
  async *results(upstreamName: string): AsyncIterable<JobResult> {
    for (const item of [...(this.jobs.get(upstreamName)?.items ?? [])].reverse()) {
      const result = await this.resultOf(item);
      if (result) yield result;
    }
  }

  async cancel(): Promise<void> {}
  async close(): Promise<void> {}
}

export const lostAnswer = () => new ProviderError("PROVIDER_TIMEOUT", "the answer was lost");
