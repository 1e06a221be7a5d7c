import type { Batch } from "../../client/wire/read-batch.ts";
import type { CommandContext, CommandResult } from "../command-line/command-context.ts";
import type { Target } from "../runs/targets.ts";
import { batchLine } from "./batch-line.ts";
import { countTargets, judgeBatches } from "./judge-batches.ts";
import { nextSteps } from "./next-steps.ts";

/** The result of a command that waited for batches. Their images are still on the service. */
export function describeEnd(
  { output, global }: CommandContext,
  targets: readonly Target[],
  batches: readonly Batch[],
): CommandResult {
  const { counts, deciding } = countTargets(targets, batches);
  const { exitCode, error } = judgeBatches(counts, deciding);
  if (error !== null) output.note(error.message);
  const json = { batches: batches.map((batch) => batch.raw), counts, ...(error === null ? {} : { error }) };
  return { exitCode, json, lines: batches.map(batchLine), next: nextSteps(global, targets, batches) };
}
