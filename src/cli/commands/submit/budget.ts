import { ImgbatchError } from "../../../contract/errors.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { formatUsd, microsToNumber } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { readRunState } from "../../../runs/directory/run-state.ts";
import type { ChosenModel } from "../../../runs/plan/choose-model.ts";
import { chooseKeys } from "../../../runs/plan/idempotency-keys.ts";
import type { Chunk, Plan } from "../../../runs/plan/plan.ts";
import type { CommandResult } from "../../command-line/command-context.ts";
import type { SubmitOptions } from "./options.ts";

/** What a run may cost. */
export interface Budget {
  /** Null when nobody says what an image costs. */
  estimate(chunks: readonly Chunk[]): number | null;
  estimateImages(images: number): number | null;
  /** Throws `COST_LIMIT` when these batches may cost more than allowed. */
  approve(chunks: readonly Chunk[]): void;
  approveImages(images: number): void;
}

/** Throws `USAGE` when there is a limit but no price to compare it with. */
export function createBudget(
  options: Pick<SubmitOptions, "maxCostMicroUsd" | "unitCostMicroUsd">,
  model: ChosenModel,
): Budget {
  const unit = options.unitCostMicroUsd ?? model.imageCostMicroUsd;
  const max = options.maxCostMicroUsd;
  if (max !== undefined && unit === null) {
    const message = `The service does not say what an image of ${model.id} costs: add --unit-cost for --max-cost.`;
    throw new ImgbatchError("USAGE", message, { param: "--unit-cost" });
  }
  const estimateImages = (images: number) => (unit === null ? null : unit * images);
  const approveImages = (images: number) => {
    const cost = estimateImages(images);
    if (max === undefined || cost === null || cost <= max) return;
    const message = `${counted(images, "image")} would cost ${formatUsd(cost)}, more than --max-cost ${formatUsd(max)}; nothing was sent.`;
    throw new ImgbatchError("COST_LIMIT", message);
  };
  return {
    estimateImages,
    approveImages,
    estimate: (chunks) => estimateImages(imagesOf(chunks)),
    approve: (chunks) => approveImages(imagesOf(chunks)),
  };
}

function imagesOf(chunks: readonly Chunk[]): number {
  return chunks.reduce((sum, chunk) => sum + chunk.imageCount, 0);
}

/** What a run would do, without doing it. The cost limit is checked as it would be. */
export async function describeDryRun(
  plan: Plan,
  options: SubmitOptions,
  budget: Budget,
): Promise<CommandResult> {
  const { chunks, items, request } = plan;
  const choice = { explicit: options.explicitKey, isNew: options.isNew };
  const { keys } = chooseKeys(plan, choice, await readRunState(options.dir));
  budget.approve(chunks);
  const cost = budget.estimate(chunks);
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
      })),
    },
    lines: [
      `${counted(items.length, "prompt")}, ${counted(imagesOf(chunks), "image")}, ${counted(chunks.length, "batch", "batches")} with ${request.model}`,
      ...(cost === null ? [] : [`estimated cost ${formatUsd(cost)}`]),
      ...keys,
    ],
  };
}
