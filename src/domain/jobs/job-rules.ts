import type { ShownJob } from "../../contract/waiting.ts";
import type { ProviderError, Trouble } from "../ports/image-provider.ts";
import type { JobStep, UpstreamJobRecord } from "../ports/upstream-jobs.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** Upstreams forget files and jobs after 48 hours. Older ones are neither used nor created again. */
export const FORGOTTEN_MS = 47 * HOUR_MS;
/** A job may be in the upstream's list with an earlier time than ours: its clock may differ. */
export const CLOCK_SLACK_MS = HOUR_MS;
/** How long an upstream is told to stop a job, and how long a job is looked for that may have been created. */
export const GIVE_UP_MS = HOUR_MS;
/** No job is created more often: of two lost answers, both jobs may be paid. */
export const MOST_CREATES = 2;

const LONGEST_POLL_MS = 5 * MINUTE_MS;

/** Returns the pause between two looks at a job of this age: `pollMs` at first, growing to 5 minutes. */
export function pollPauseMs(ageMs: number, pollMs: number): number {
  return Math.max(pollMs, Math.min(LONGEST_POLL_MS, ageMs / 20));
}

/** Failures of a request to create a job after which none exists for sure. */
const NOTHING_CREATED: readonly (Trouble | null)[] = [
  "credential",
  "billing",
  "forbidden",
  "no-model",
  "limited",
  "unreachable",
];

const OVERLOADED = [503, 529];

/** Returns whether the upstream says that it takes nothing now. A gateway may say so although the job was made. */
export function isOverloaded({ trouble, upstreamStatus }: ProviderError): boolean {
  return trouble === "failing" && upstreamStatus !== null && OVERLOADED.includes(upstreamStatus);
}

/** Returns whether a job may exist although the request to create it has failed. */
export function mayBeCreated({ trouble, retryable }: ProviderError): boolean {
  return trouble === null ? retryable : !NOTHING_CREATED.includes(trouble);
}

/** Returns how many jobs may exist upstream whose names are not known. */
export function unnamedJobs({ creates, upstreamName, endedNames }: UpstreamJobRecord): number {
  return Math.max(0, creates - endedNames.length - (upstreamName === null ? 0 : 1));
}

/** Whether the upstream may still make images for the job. */
export function isAtWork({ step }: UpstreamJobRecord): boolean {
  return step !== "done" && step !== "closed";
}

/** The work on a job in each step, in words. A running job is in the state that the upstream says. */
const WORDS: Readonly<Record<JobStep, string>> = {
  new: "uploading",
  uploaded: "creating",
  sent: "looking for the job",
  running: "running",
  ended: "fetching results",
  done: "closing",
  closed: "closed",
};

/** Shows a job with its age. */
export function showJob(job: UpstreamJobRecord): ShownJob {
  const { id, step, upstreamName: name, said, createdAtMs, sentAtMs } = job;
  const state = step === "running" && said ? said : WORDS[step];
  return { id, name, state, said, createdAtMs: sentAtMs ?? createdAtMs };
}
