import { allWithCounts } from "../../client/count-items.ts";
import { wallClock } from "../../kernel/clock.ts";
import { awaitBatches } from "../../run/await-run.ts";
import { retryIds } from "../../run/ledger.ts";
import type { RunCommand } from "../command.ts";
import { describeEnd } from "../describe-end.ts";
import { requireOutputs } from "../ended.ts";
import { fairInterval } from "../fair-interval.ts";
import { watchEnds } from "../going-batches.ts";
import { lookAtAll } from "../look.ts";
import { timeOf } from "../option-values.ts";
import { recordAll, requireReachable, requireSubmitted, resolveTargets } from "../targets.ts";
import { explainStop, timeLimit, withService } from "../with-service.ts";

/** `imgbatch wait`: until every batch has ended. */
export const run: RunCommand = async (context) => {
  const { options } = context;
  const { output, hasEnded } = watchEnds(context.output);
  const interval = timeOf(options, "interval", "--interval");
  const limit = timeLimit(context.signal, timeOf(options, "timeout", "--timeout"));
  const targets = await resolveTargets(context);
  requireSubmitted(targets, context.global);
  const ids = targets.flatMap((target) => target.ids);
  let going = ids;
  const { signal } = limit;
  try {
    return await withService({ ...context, signal }, { workers: true }, async (service) => {
      requireReachable(targets, service);
      try {
        const found = await lookAtAll(service.http, ids, signal);
        going = found.filter(({ isDone }) => !isDone).map(({ id }) => id);
        const ended = await awaitBatches(found, {
          service,
          clock: wallClock,
          random: Math.random,
          intervalMs: fairInterval(interval, service, output),
          signal,
          voice: output,
          retries: new Set(targets.flatMap(({ run }) => (run === null ? [] : retryIds(run.ledger)))),
        });
        const batches = await allWithCounts(service.http, ended, signal);
        await recordAll(targets, batches);
        output.settle();
        requireOutputs(batches);
        return describeEnd(context, targets, batches);
      } catch (error) {
        const left = going.filter((id) => !hasEnded(id));
        throw explainStop(error, service.kind, left.length > 0 ? left : ids);
      }
    });
  } finally {
    limit.stop();
  }
};
