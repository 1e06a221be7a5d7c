import { isTerminal } from "../../contract/statuses.ts";
import type { Output } from "../command-line/command-context.ts";

/** Wraps an output and remembers from its progress events which batches have ended. */
export function trackEnded(output: Output): { output: Output; hasEnded: (id: string) => boolean } {
  const ended = new Set<string>();
  const watched: Output = {
    ...output,
    event: (event) => {
      if (event.event === "progress" && isTerminal(event.status)) ended.add(event.batch_id);
      output.event(event);
    },
  };
  return { output: watched, hasEnded: (id) => ended.has(id) };
}
