import { withCounts } from "../../client/batches.ts";
import { timeLimit } from "../../client/poll.ts";
import { retryIds } from "../../runs/directory/run-state.ts";
import { awaitBatches } from "../../runs/wait.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { withService } from "../connect/connect.ts";
import { explainStop, pollInterval, trackEnded } from "../interruption.ts";
import type { Values } from "../options.ts";
import { describeEnd } from "../output/batches.ts";
import {
  recordAll,
  rememberedUpstream,
  requireBatches,
  requireImages,
  requireSubmitted,
  resolveTargets,
} from "../targets.ts";
import { targets, waiting, waitOptions } from "./shared-options.ts";

export const command = defineCommand({
  arguments: [targets],
  options: waitOptions,
  examples: ["imgbatch wait prompts-images --timeout 45m"],
  exits: [...waiting, "money", "saving"],
  run,
});

/** `imgbatch wait`: waits until every batch has ended. */
async function run(context: CommandContext<Values<typeof waitOptions>>): Promise<CommandResult> {
  const { options, clock } = context;
  const { output, hasEnded } = trackEnded(context.output);
  const limit = timeLimit(context, options.timeoutMs);
  const targets = await resolveTargets(context);
  const ids = targets.flatMap((target) => target.ids);
  let going = ids;
  const { signal } = limit;
  try {
    const needs = { workers: true, ...rememberedUpstream(targets) };
    return await withService({ ...context, signal }, needs, async (service) => {
      requireSubmitted(targets, service, context.global);
      try {
        const found = await requireBatches(service.http, targets, signal);
        going = found.filter(({ isDone }) => !isDone).map(({ id }) => id);
        if (going.length > 0) service.noteDrawings();
        const waiting = {
          service,
          clock,
          random: Math.random,
          intervalMs: pollInterval(options.intervalMs, service, output),
          signal,
          reporter: output,
          retries: new Set(targets.flatMap(({ run }) => (run === null ? [] : retryIds(run.state)))),
        };
        // Commands that only ask start without the libraries that save images.
        const { savingEarlyOf } = await import("../finish-run.ts");
        const ended = await savingEarlyOf({ ...context, output, signal }, service, targets, (onLook) =>
          awaitBatches(found, { ...waiting, onLook }),
        );
        const batches = await withCounts(service.http, ended, signal);
        await recordAll(targets, batches, clock);
        output.settle();
        await requireImages(targets, batches, service, context.global);
        return await describeEnd({ ...context, signal }, service.http, targets, batches);
      } catch (error) {
        const left = going.filter((id) => !hasEnded(id));
        throw explainStop(error, service, left.length > 0 ? left : ids);
      }
    });
  } finally {
    limit.stop();
  }
}
