import type { Batch } from "../../client/batch.ts";
import type { Http } from "../../http/http.ts";
import { askedCounts } from "../../runs/run-batches.ts";
import type { CommandContext, CommandResult } from "../command-line/command-context.ts";
import type { Target } from "../runs/targets.ts";
import { batchLine } from "./batch-line.ts";
import { countTargets, judgeBatches } from "./judge-batches.ts";
import { nextSteps } from "./next-steps.ts";

/** The result of a command that waited for batches (`ended`). Their images are still on the service. */
export async function describeEnd(
  { output, global, signal }: CommandContext,
  http: Http,
  targets: readonly Target[],
  ended: readonly Batch[],
): Promise<CommandResult> {
  const runs = targets.flatMap(({ run }) => run ?? []);
  const batches = await askedCounts(http, ended, runs, signal);
  const { counts, deciding } = countTargets(targets, batches);
  const { exitCode, error } = judgeBatches(counts, deciding);
  if (error !== null) output.note(error.message);
  const json = { batches: batches.map((batch) => batch.raw), counts, ...(error === null ? {} : { error }) };
  return { exitCode, json, lines: batches.map(batchLine), next: nextSteps(global, targets, batches) };
}
