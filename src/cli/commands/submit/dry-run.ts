import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { formatUsd, microsToNumber } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { readRunState, submittedBatches } from "../../../runs/directory/run-state.ts";
import type { RunState } from "../../../runs/directory/run-state-schema.ts";
import { chooseKeys } from "../../../runs/plan/idempotency-keys.ts";
import type { Chunk, Plan } from "../../../runs/plan/plan.ts";
import { describeChanges, planUpdate } from "../../../runs/update/plan-update.ts";
import type { CommandResult } from "../../command-line/command-context.ts";
import { type Budget, imagesOf } from "../../runs/budget.ts";
import type { SubmitOptions } from "./options.ts";

/**
 * Describes the planned run, and submits nothing. Batches that the directory has already cost nothing. Throws
 * `COST_LIMIT` as the run itself would.
 */
export async function describeDryRun(
  plan: Plan,
  options: SubmitOptions,
  budget: Budget,
): Promise<CommandResult> {
  const { chunks, items, request } = plan;
  const state = await readRunState(options.dir);
  if (
    options.isUpdate &&
    state !== null &&
    state.kind !== "realtime" &&
    state.input_sha256 !== plan.inputSha256
  )
    return describeUpdate(plan, state, options, budget);
  const choice = { explicit: options.explicitKey, isNew: options.isNew };
  const { keys } = chooseKeys(plan, choice, state);
  const submitted = state === null ? [] : submittedBatches(state);
  const known = new Set(submitted.flatMap(({ id, idempotency_key }) => (id === null ? [] : idempotency_key)));
  const isReused = ({ index }: Chunk) => known.has(keys[index] ?? null);
  const fresh = chunks.filter((chunk) => !isReused(chunk));
  budget.approve(fresh);
  const cost = budget.estimate(fresh);
  return {
    exitCode: EXIT_CODES.ok.code,
    json: {
      dry_run: true,
      directory: options.shownDir,
      model: request.model,
      item_count: items.length,
      image_count: imagesOf(chunks),
      estimated_cost: cost === null ? null : microsToNumber(cost),
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
            `${counted(chunks.length - fresh.length, "batch", "batches")} submitted before, re-used for $0.00`,
          ]),
      ...(cost === null ? [] : [`estimated cost ${formatUsd(cost)}`]),
      ...keys,
    ],
  };
}

async function describeUpdate(
  plan: Plan,
  state: RunState,
  { dir, shownDir }: SubmitOptions,
  budget: Budget,
): Promise<CommandResult> {
  const update = await planUpdate(dir, state, plan);
  const { images, kept, changed, added, removed } = update;
  budget.approveImages(images.length);
  const cost = budget.estimateImages(images.length);
  return {
    exitCode: EXIT_CODES.ok.code,
    json: {
      dry_run: true,
      directory: shownDir,
      model: plan.request.model,
      item_count: plan.items.length,
      image_count: images.length,
      estimated_cost: cost === null ? null : microsToNumber(cost),
      changes: {
        kept: kept.length,
        changed: changed.map(({ customId }) => customId),
        added: added.map(({ customId }) => customId),
        removed: removed.map(({ id }) => id),
      },
    },
    lines: [
      describeChanges(update),
      `${counted(images.length, "image")} to make with ${plan.request.model}`,
      ...(cost === null ? [] : [`estimated cost ${formatUsd(cost)}`]),
    ],
  };
}
