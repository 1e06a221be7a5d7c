import type { Batch } from "../client/read-batch.ts";
import { batchLine } from "./batch-lines.ts";
import type { CommandContext, CommandResult } from "./command.ts";
import { countTargets, judge } from "./ended.ts";
import { nextSteps } from "./next-steps.ts";
import type { Target } from "./targets.ts";

/** Says how batches ended that were waited for; their images are still with the service. */
export function describeEnd(
  { output, global }: CommandContext,
  targets: readonly Target[],
  batches: readonly Batch[],
): CommandResult {
  const { counts, deciding } = countTargets(targets, batches);
  const { exitCode, error } = judge(counts, deciding);
  if (error !== null) output.note(error.message);
  const json = { batches: batches.map((batch) => batch.raw), counts, ...(error === null ? {} : { error }) };
  return { exitCode, json, lines: batches.map(batchLine), next: nextSteps(global, targets, batches) };
}
