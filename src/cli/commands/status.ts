import type { Batch } from "../../client/answers.ts";
import { withCounts } from "../../client/batches.ts";
import { EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import type { Http } from "../../http/http.ts";
import { counted } from "../../kernel/text.ts";
import { askedCounts } from "../../runs/run-batches.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { withService } from "../connect/connect.ts";
import { batchLine } from "../output/batches.ts";
import { exitCodeOf } from "../output/finish.ts";
import { ALL_HERE, nextSteps, unknownNote } from "../output/next-step.ts";
import { rememberedUpstream, requireBatches, resolveTargets, type Target, unknownRun } from "../targets.ts";
import { asking, targets } from "./shared-options.ts";

export const command: CommandDetails = {
  arguments: [targets],
  examples: ["imgbatch status prompts-images", "imgbatch status imgbatch_… --json"],
  exits: asking,
  run,
};

/** `imgbatch status`: shows each batch as it is now. A missing batch does not hide the others. */
async function run(context: CommandContext): Promise<CommandResult> {
  const { output, signal } = context;
  const targets = await resolveTargets(context);
  for (const { argument, unsent } of targets) {
    const were = unsent === 1 ? "was" : "were";
    if (unsent > 0)
      output.warn(`${counted(unsent, "batch", "batches")} of ${argument} ${were} not submitted yet`);
  }
  const needs = { workers: false, ...rememberedUpstream(targets) };
  return withService(context, needs, async ({ http, ...service }) => {
    const batches: Batch[] = [];
    const missing: ImgbatchError[] = [];
    for (const { id, run } of targets.flatMap(({ ids, run }) => ids.map((id) => ({ id, run })))) {
      try {
        batches.push(await looked(http, { ids: [id], run }, signal));
      } catch (error) {
        const isMissing = error instanceof ImgbatchError && error.code === "BATCH_IMAGE_NOT_FOUND";
        if (!isMissing) throw error;
        missing.push(error);
      }
    }
    for (const target of targets) {
      const unknown = await unknownRun(target, batches, { http, ...service }, context.global);
      if (unknown?.isWhole) output.note(unknownNote(unknown.error, ALL_HERE));
      else if (unknown !== null) missing.push(unknown.error);
    }
    const [first] = missing;
    if (first !== undefined && batches.length === 0) throw first;
    for (const error of missing) output.note(`error: ${error.message}`);
    return {
      exitCode: first === undefined ? EXIT_CODES.ok.code : exitCodeOf(first),
      json: {
        batches: batches.map((batch) => batch.raw),
        ...(first === undefined ? {} : { error: { code: first.code, message: first.message } }),
      },
      lines: batches.map((batch) => batchLine(batch, context.global)),
      next: first?.advice ?? nextSteps(context.global, targets, batches),
    };
  });
}

/** Fetches counts that the service left out, and those of an updated run. A failure of these requests is ignored. */
async function looked(http: Http, target: Pick<Target, "ids" | "run">, signal: AbortSignal): Promise<Batch> {
  const [batch] = await requireBatches(http, [target], signal);
  if (batch === undefined) throw new ImgbatchError("INTERNAL", "A batch was asked for without its id.");
  const runs = target.run === null ? [] : [target.run];
  const counting = async () => {
    const [counted = batch] = await askedCounts(http, await withCounts(http, [batch], signal), runs, signal);
    return counted;
  };
  return counting().catch((error) => {
    if (signal.aborted || !(error instanceof ImgbatchError)) throw error;
    return batch;
  });
}
