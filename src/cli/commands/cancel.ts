import type { Batch } from "../../client/answers.ts";
import { cancelBatch } from "../../client/batches.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { withService } from "../connect/connect.ts";
import { CANCELS_AT_ONCE, saveMade, untilCancelled } from "../interruption.ts";
import { batchLine, describeCancel, releasedMicroUsd } from "../output/batches.ts";
import { nextCommand } from "../output/next-step.ts";
import {
  forEachBatch,
  ownIds,
  recordAll,
  rememberedUpstream,
  requireBatch,
  resolveTarget,
  withUnknown,
} from "../targets.ts";
import { asking, target } from "./shared-options.ts";

export const command: CommandDetails = {
  arguments: [target],
  examples: ["imgbatch cancel prompts-images"],
  exits: asking,
  run,
};

/**
 * `imgbatch cancel`: cancels a batch, or every batch of a run. Nothing more is sent, what has left for a paid upstream is
 * awaited, and finished images stay and are billed. Those of a run are saved in its directory.
 */
async function run(context: CommandContext): Promise<CommandResult> {
  const { output, signal } = context;
  const target = await resolveTarget(context.arguments[0] ?? "", context.cwd);
  const needs = { workers: true, images: false, ...rememberedUpstream([target]) };
  return withService(context, needs, async (service) => {
    const own = ownIds(target, service);
    const { http } = service;
    const cancel = async (id: string) => {
      const before = await requireBatch(http, id, signal);
      const asked = before.isDone ? before : await cancelBatch(http, id, signal);
      if (!asked.isDone) output.note(describeCancel(asked));
      const batch = await untilCancelled(asked, service, context);
      return { batch, isNew: !before.isDone && batch.status === "cancelled" };
    };
    // All of them stop before the first is awaited.
    const ended = await forEachBatch(own, cancel, ({ batch }) => describe(batch), CANCELS_AT_ONCE);
    const batches = ended.map(({ batch }) => batch);
    await recordAll([target], batches, context.clock);
    for (const { batch, isNew } of ended) output.note(describe(batch, isNew));
    const place = target.run && { dir: target.run.dir, shownDir: target.argument };
    const saved = place && (await saveMade(context, service, place));
    const fetch = saved === null ? nextCommand(context.global, "download", target.argument) : null;
    const next = fetch ?? nextCommand({}, "open", target.argument);
    return withUnknown(target, service, context, {
      ...(batches.some((batch) => batch.successCount > 0) ? { next } : {}),
      json: {
        cancelled: ended.filter(({ isNew }) => isNew).map(({ batch }) => batch.id),
        released: releasedOf(ended),
        ...(batches.length > 0 && batches.every(({ isPlay }) => isPlay) ? { play_money: true } : {}),
        batches: batches.map((batch) => batch.raw),
      },
      lines: batches.map((batch) => batchLine(batch, context.global)),
    });
  });
}

function describe(batch: Batch, isNew = true): string {
  if (isNew || batch.status !== "cancelled") return describeCancel(batch);
  return `${batch.id} was already cancelled`;
}

/** The released amount in dollars; null if the service does not report it. */
function releasedOf(ended: readonly { batch: Batch; isNew: boolean }[]): number | null {
  const amounts = ended.filter(({ isNew }) => isNew).map(({ batch }) => releasedMicroUsd(batch));
  if (amounts.includes(null)) return null;
  return microsToNumber(amounts.reduce<number>((sum, amount) => sum + (amount ?? 0), 0));
}
