import type { Batch } from "../client/read-batch.ts";
import { batchLine } from "./batch-lines.ts";
import type { CommandContext, CommandResult } from "./command.ts";
import { countTargets, judge } from "./ended.ts";
import type { Target } from "./targets.ts";

/** Says how batches ended that were waited for; their images are still with the service. */
export function describeEnd(
  { output }: CommandContext,
  targets: readonly Target[],
  batches: readonly Batch[],
): CommandResult {
  const { counts, deciding } = countTargets(targets, batches);
  const { exitCode, error } = judge(counts, deciding);
  if (error !== null) output.note(error.message);
  const commands = targets.map(({ argument }) => `imgbatch download ${argument}`);
  if (counts.success > 0) output.note(`next: ${commands.join("; ")}`);
  else output.note(`next: imgbatch items ${targets[0]?.argument} says why`);
  const json = { batches: batches.map((batch) => batch.raw), counts, ...(error === null ? {} : { error }) };
  return { exitCode, json, lines: batches.map(batchLine) };
}
