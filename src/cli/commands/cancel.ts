import type { Batch } from "../../client/answers.ts";
import { cancelBatch } from "../../client/batches.ts";
import { untilCancelled } from "../../client/poll.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { withService } from "../connect/connect.ts";
import { CANCELS_AT_ONCE, saveMade } from "../interruption.ts";
import { batchLine, describeCancel, releasedMicroUsd } from "../output/batches.ts";
import { nextCommand, openStep } from "../output/next-step.ts";
import {
  forEachBatch,
  ownIds,
  recordAll,
  rememberedUpstream,
  requireBatch,
  resolveTargets,
  withUnknown,
} from "../targets.ts";
import { asking, targets } from "./shared-options.ts";

export const command: CommandDetails = {
  arguments: [targets],
  examples: ["imgbatch cancel prompts-images", "imgbatch cancel pets-images towns-images"],
  exits: asking,
  run,
};

/**
 * `imgbatch cancel`: cancels batches, or every batch of runs. Nothing more is sent, what has left for a paid upstream is
 * awaited, and finished images stay and are billed. Those of a run are saved in its directory.
 */
async function run(context: CommandContext): Promise<CommandResult> {
  const { output, signal } = context;
  const named = await resolveTargets(context);
  const needs = { workers: true, images: false, ...rememberedUpstream(named) };
  return withService(context, needs, async (service) => {
    const own = named.flatMap((target) => ownIds(target, service));
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
    await recordAll(named, batches, context.clock);
    for (const { batch, isNew } of ended) output.note(describe(batch, isNew));
    const [here, elsewhere]: [string[], string[]] = [[], []];
    for (const { argument, ids, run } of named) {
      const saved = run && (await saveMade(context, service, { dir: run.dir, shownDir: argument }));
      const hasImages = batches.some(({ id, successCount }) => ids.includes(id) && successCount > 0);
      if (hasImages) (saved === null ? elsewhere : here).push(argument);
    }
    const steps = elsewhere.map((argument) => nextCommand(context.global, "download", argument));
    if (here.length > 0) steps.unshift(openStep(...here.slice(0, MOST_SHOWN)));
    const result: CommandResult = {
      ...(steps.length > 0 ? { next: steps.slice(0, MOST_SHOWN).join("; ") } : {}),
      json: {
        cancelled: ended.filter(({ isNew }) => isNew).map(({ batch }) => batch.id),
        released: releasedOf(ended),
        ...(batches.length > 0 && batches.every(({ isPlay }) => isPlay) ? { play_money: true } : {}),
        batches: batches.map((batch) => batch.raw),
      },
      lines: batches.map((batch) => batchLine(batch, context.global)),
    };
    return named.reduce((known, target) => withUnknown(target, service, context, known), result);
  });
}

/** A longer list does not help. */
const MOST_SHOWN = 5;

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
