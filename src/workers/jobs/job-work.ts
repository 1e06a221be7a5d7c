import type PQueue from "p-queue";
import type { Waiting } from "../../contract/waiting.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { WorkerDeps } from "../deps.ts";
import type { JobWatch } from "./job-watch.ts";

/** A job at work, and what its steps share. */
export interface JobWork {
  deps: WorkerDeps;
  provider: JobProvider;
  batch: BatchRecord;
  jobId: string;
  /** The model that the upstream runs. */
  model: string;
  watch: JobWatch;
  /** One upload and one download run at once: each holds parts of images in memory. */
  uploads: PQueue;
  downloads: PQueue;
  /** Ends the work on the job here. The job itself goes on upstream. */
  signal: AbortSignal;
  /** Ends a request that creates a job. Its answer is lost then. */
  abandoned: AbortSignal;
  /** Called when items went back to their batch, which then needs another job. */
  onReleased(): void;
  /** Why it cannot go on now; null when it can. */
  waiting: Waiting | null;
  /** The record as it was read or written last; null before. */
  job: UpstreamJobRecord | null;
  /** A request to create it is under way. */
  isCreating: boolean;
}
