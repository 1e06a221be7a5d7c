import { allWithCounts } from "../../client/count-items.ts";
import { wallClock } from "../../kernel/clock.ts";
import { awaitBatches } from "../../run/await-run.ts";
import type { RunCommand } from "../command.ts";
import { describeEnd } from "../describe-end.ts";
import { requireOutputs } from "../ended.ts";
import { fairInterval } from "../fair-interval.ts";
import { lookAtAll } from "../look.ts";
import { timeOf } from "../option-values.ts";
import { recordAll, requireReachable, requireSubmitted, resolveTargets } from "../targets.ts";
import { explainStop, timeLimit, withService } from "../with-service.ts";

/** `imgbatch wait`: until every batch has ended. */
export const run: RunCommand = async (context) => {
  const { options, output } = context;
  const interval = timeOf(options, "interval", "--interval");
  const limit = timeLimit(context.signal, timeOf(options, "timeout", "--timeout"));
  const targets = await resolveTargets(context);
  requireSubmitted(targets, context.global);
  const ids = targets.flatMap((target) => target.ids);
  const { signal } = limit;
  try {
    return await withService({ ...context, signal }, { workers: true }, async (service) => {
      requireReachable(targets, service);
      try {
        const found = await lookAtAll(service.http, ids, signal);
        const ended = await awaitBatches(found, {
          service,
          clock: wallClock,
          random: Math.random,
          intervalMs: fairInterval(interval, service, output),
          signal,
          voice: output,
        });
        const batches = await allWithCounts(service.http, ended, signal);
        await recordAll(targets, batches);
        output.settle();
        requireOutputs(batches);
        return describeEnd(context, targets, batches);
      } catch (error) {
        throw explainStop(error, service.kind, ids);
      }
    });
  } finally {
    limit.stop();
  }
};
