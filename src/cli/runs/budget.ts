import { ImgbatchError } from "../../contract/errors.ts";
import { formatUsd } from "../../kernel/money.ts";
import { counted } from "../../kernel/text.ts";
import type { ChosenModel } from "../../runs/plan/choose-model.ts";
import type { Chunk } from "../../runs/plan/plan.ts";
import type { RunOptions } from "./run-options.ts";

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
  options: Pick<RunOptions, "maxCostMicroUsd" | "unitCostMicroUsd">,
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

/** How many images these batches make. */
export function imagesOf(chunks: readonly Chunk[]): number {
  return chunks.reduce((sum, chunk) => sum + chunk.imageCount, 0);
}
