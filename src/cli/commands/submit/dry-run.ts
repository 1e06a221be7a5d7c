import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { microsToNumber, playMoneyField } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { checkDirectory } from "../../../runs/directory/claim.ts";
import { submittedBatches } from "../../../runs/directory/run-state.ts";
import type { Chunk } from "../../../runs/plan/plan.ts";
import { describeChanges } from "../../../runs/plan/update.ts";
import { imagesIn, unsentBatches } from "../../../runs/send.ts";
import {
  chooseStart,
  imagesToSend,
  openImages,
  planSubmission,
  type Start,
  type StartOptions,
} from "../../../runs/start.ts";
import type { CommandResult } from "../../command-line/command-context.ts";
import { type Budget, estimateLine, imagesOf } from "../../runs/budget.ts";

/**
 * Describes the planned run, and submits nothing. Batches that the directory has already cost nothing. Throws the errors
 * that the run itself would throw before it sends anything.
 */
export async function describeDryRun(work: StartOptions, budget: Budget): Promise<CommandResult> {
  const { plan, dir } = work;
  const start = await chooseStart(work, checkDirectory);
  if (start.kind !== "run") return describeUpdate(work, start, budget);
  const { chunks, items, request } = plan;
  const state = planSubmission(work, await checkDirectory(dir, plan.inputSha256));
  const keys = submittedBatches(state).map((batch) => batch.idempotency_key);
  const isReused = ({ index }: Chunk) => state.batches[index]?.state === "created";
  const fresh = chunks.filter((chunk) => !isReused(chunk));
  const unsent = imagesIn(unsentBatches(state, work.service));
  budget.approveImages(unsent);
  const cost = budget.estimateImages(unsent);
  return {
    exitCode: EXIT_CODES.ok.code,
    json: {
      dry_run: true,
      directory: work.shownDir,
      model: request.model,
      item_count: items.length,
      image_count: imagesOf(chunks),
      estimated_cost: cost === null ? null : microsToNumber(cost.micros),
      ...playMoneyField(cost),
      batches: chunks.map((chunk) => ({
        index: chunk.index,
        item_count: chunk.items.length,
        image_count: chunk.imageCount,
        idempotency_key: keys[chunk.index],
        replayed: isReused(chunk),
      })),
    },
    lines: [
      `${counted(items.length, "prompt")}, ${counted(imagesOf(chunks), "image")}, ${counted(chunks.length, "batch", "batches")} with ${request.model}`,
      ...(fresh.length === chunks.length
        ? []
        : [
            `${counted(chunks.length - fresh.length, "batch", "batches")} submitted before: re-used, nothing is paid again`,
          ]),
      ...estimateLine(cost),
      ...keys.map(String),
    ],
  };
}

async function describeUpdate(
  { plan, shownDir, service }: StartOptions,
  start: Exclude<Start, { kind: "run" }>,
  budget: Budget,
): Promise<CommandResult> {
  const { update, earlier } = start;
  const { kept, changed, added, removed } = update;
  const images = imagesToSend(start, service);
  const open = start.kind === "update" ? openImages(earlier, service) : 0;
  budget.approveImages(images);
  const cost = budget.estimateImages(images);
  return {
    exitCode: EXIT_CODES.ok.code,
    json: {
      dry_run: true,
      directory: shownDir,
      model: plan.request.model,
      item_count: plan.items.length,
      image_count: images,
      estimated_cost: cost === null ? null : microsToNumber(cost.micros),
      ...playMoneyField(cost),
      changes: {
        kept: kept.length,
        changed: changed.map(({ customId }) => customId),
        added: added.map(({ customId }) => customId),
        removed: removed.map(({ id }) => id),
      },
    },
    lines: [
      start.kind === "resume" ? "the run was updated to these prompts" : describeChanges(update),
      `${counted(images, "image")} to make with ${plan.request.model}`,
      ...(open === 0 ? [] : [`${open} of them are of the earlier submission, which is finished first`]),
      ...estimateLine(cost),
    ],
  };
}
