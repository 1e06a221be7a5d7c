import type { JobState } from "../../../domain/ports/image-provider.ts";
import { oneLine } from "../words.ts";

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
