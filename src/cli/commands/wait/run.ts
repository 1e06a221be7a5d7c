import { allWithCounts } from "../../../client/batches.ts";
import { retryIds } from "../../../runs/directory/run-state.ts";
import { awaitBatches } from "../../../runs/wait.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { positiveDurationOption } from "../../command-line/option-values.ts";
import { explainStop } from "../../interruption/stop-reason.ts";
import { timeLimit } from "../../interruption/time-limit.ts";
import { trackEnded } from "../../interruption/track-ended.ts";
import { describeEnd } from "../../result/batch-summary.ts";
import { requireBatches } from "../../runs/get-batches.ts";
import { pollInterval } from "../../runs/poll-interval.ts";
import { requireImages } from "../../runs/require-images.ts";
import { recordAll, requireSubmitted, resolveTargets } from "../../runs/targets.ts";
import { rememberedUpstream } from "../../runs/upstream.ts";
import { withService } from "../../service/with-service.ts";

/** `imgbatch wait`: waits until every batch has ended. */
export const run: RunCommand = async (context) => {
  const { options, clock } = context;
  const { output, hasEnded } = trackEnded(context.output);
  const interval = positiveDurationOption(options, "interval");
  const limit = timeLimit(context, positiveDurationOption(options, "timeout"));
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
        const ended = await awaitBatches(found, {
          service,
          clock,
          random: Math.random,
          intervalMs: pollInterval(interval, service, output),
          signal,
          reporter: output,
          retries: new Set(targets.flatMap(({ run }) => (run === null ? [] : retryIds(run.state)))),
        });
        const batches = await allWithCounts(service.http, ended, signal);
        await recordAll(targets, batches, clock);
        output.settle();
        await requireImages(targets, batches, service, context.global);
        return await describeEnd({ ...context, signal }, service.http, targets, batches);
      } catch (error) {
        const left = going.filter((id) => !hasEnded(id));
        throw explainStop(error, service.kind, left.length > 0 ? left : ids);
      }
    });
  } finally {
    limit.stop();
  }
};
