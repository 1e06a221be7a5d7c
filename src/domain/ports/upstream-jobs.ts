import type { JobState } from "./image-provider.ts";

/**
 * How far a job upstream has come. Each step is stored before the next call is sent, and can be repeated.
 *
 * - `new`: it has items. Their input is uploaded next.
 * - `uploaded`: the upstream has its input. It is created next.
 * - `sent`: a request to create it has left, and no answer is known. It is looked for.
 * - `running`: the upstream's name of it is known. It is polled.
 * - `ended`: the upstream has ended it. Its results are fetched next.
 * - `done`: none of its items is pending. Its files at the upstream are removed next.
 * - `closed`: nothing is left to do.
 */
export type JobStep = "new" | "uploaded" | "sent" | "running" | "ended" | "done" | "closed";

/** A job that an upstream works on for a part of a batch. */
export interface UpstreamJobRecord {
  /** Chosen by us; the upstream keeps it with the job. */
  id: string;
  batchId: string;
  step: JobStep;
  /** Its items have reference images. */
  hasReferences: boolean;
  /** The upstream's name of the uploaded input. */
  input: string | null;
  uploadedAtMs: number | null;
  /** The upstream's own name of the job that is at work; null while none is known. */
  upstreamName: string | null;
  /** The upstream's names of jobs that have ended. Another one may have been created after a lost answer. */
  endedNames: readonly string[];
  /** How many requests to create the job may have made one. */
  creates: number;
  /** When the last of them was sent; null when the upstream answered each that it takes nothing now. */
  sentAtMs: number | null;
  state: JobState | null;
  /** The last words of the upstream about the job. */
  said: string | null;
  /** Why it made no image for items without a result; null while there is no such reason. */
  error: string | null;
  /** How many of its items the upstream has returned a result for. */
  results: number;
  createdAtMs: number;
  polledAtMs: number | null;
  /** When the upstream was first asked to stop the job of this name; null when it was not. */
  stopAskedAtMs: number | null;
  endedAtMs: number | null;
  closedAtMs: number | null;
}

export interface UpstreamJobRepository {
  /** A random id of this database. It distinguishes its jobs from those of others that use the same upstream. */
  databaseId(): Promise<string>;
  insert(job: UpstreamJobRecord): Promise<void>;
  byId(id: string): Promise<UpstreamJobRecord | null>;
  update(id: string, change: Partial<Omit<UpstreamJobRecord, "id" | "batchId">>): Promise<void>;
  /** Oldest first. */
  ofBatch(batchId: string): Promise<UpstreamJobRecord[]>;
  /** Jobs that are not closed although their items have ended, or no item of their batch is made any more. Oldest first. */
  toClose(): Promise<UpstreamJobRecord[]>;
  /** How many jobs are at work for each provider. */
  atWork(): Promise<{ provider: string; count: number }[]>;
}
