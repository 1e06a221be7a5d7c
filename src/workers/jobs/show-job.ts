import type { ShownJob } from "../../contract/waiting.ts";
import type { JobStep, UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";

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
