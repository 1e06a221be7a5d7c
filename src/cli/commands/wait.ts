import { getBatch } from "../../client/batches.ts";
import type { Batch } from "../../client/read-batch.ts";
import { systemClock } from "../../kernel/clock.ts";
import { awaitBatches } from "../../run/await-run.ts";
import { recordBatch, writeLedger } from "../../run/ledger.ts";
import { batchLine } from "../batch-lines.ts";
import type { RunCommand } from "../command.ts";
import { countOf, judge, requireOutputs } from "../ended.ts";
import { durationOption } from "../option-values.ts";
import { requireReachable, resolveTarget, type Target } from "../targets.ts";
import { explainStop, timeLimit, withService } from "../with-service.ts";

/** `imgbatch wait`: until every batch has ended. */
export const run: RunCommand = async (context) => {
  const { options, output } = context;
  const intervalMs = durationOption(options, "interval", "--interval");
  const limit = timeLimit(context.signal, durationOption(options, "timeout", "--timeout"));
  const targets = await Promise.all(
    context.arguments.map((argument) => resolveTarget(argument, context.cwd)),
  );
  const ids = targets.flatMap((target) => target.ids);
  const { signal } = limit;
  try {
    return await withService(context, { workers: true }, async (service) => {
      requireReachable(targets, service);
      try {
        const found: Batch[] = [];
        for (const id of ids) found.push((await getBatch(service.http, id, { signal })).batch);
        const batches = await awaitBatches(found, {
          service,
          clock: systemClock,
          random: Math.random,
          intervalMs,
          signal,
          voice: output,
        });
        await recordAll(targets, batches);
        output.settle();
        requireOutputs(batches);
        const counts = countOf(batches);
        const { exitCode, error } = judge(counts, batches);
        if (error !== null) output.note(error.message);
        output.note(`next: imgbatch download ${context.arguments.join(" ")}`);
        const json = {
          batches: batches.map((batch) => batch.raw),
          counts,
          ...(error === null ? {} : { error }),
        };
        return { exitCode, json, lines: batches.map(batchLine) };
      } catch (error) {
        throw explainStop(error, service.kind, ids);
      }
    });
  } finally {
    limit.stop();
  }
};

async function recordAll(targets: readonly Target[], batches: readonly Batch[]): Promise<void> {
  const byId = new Map(batches.map((batch) => [batch.id, batch]));
  for (const { run: named } of targets) {
    if (named === null) continue;
    for (const entry of named.ledger.batches) {
      const batch = entry.id === null ? undefined : byId.get(entry.id);
      if (batch !== undefined) recordBatch(entry, batch);
    }
    await writeLedger(named.dir, named.ledger);
  }
}
