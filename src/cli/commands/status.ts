import { getBatch } from "../../client/batches.ts";
import { EXIT_CODES } from "../../contract/exit-codes.ts";
import { batchLine } from "../batch-lines.ts";
import type { RunCommand } from "../command.ts";
import { requireReachable, resolveTarget } from "../targets.ts";
import { withService } from "../with-service.ts";

/** `imgbatch status`: one look at each batch. */
export const run: RunCommand = async (context) => {
  const targets = await Promise.all(
    context.arguments.map((argument) => resolveTarget(argument, context.cwd)),
  );
  return withService(context, { workers: false }, async (service) => {
    requireReachable(targets, service);
    const batches = [];
    for (const id of targets.flatMap((target) => target.ids)) {
      batches.push((await getBatch(service.http, id, { signal: context.signal })).batch);
    }
    return {
      exitCode: EXIT_CODES.ok.code,
      json: { batches: batches.map((batch) => batch.raw) },
      lines: batches.map(batchLine),
    };
  });
};
