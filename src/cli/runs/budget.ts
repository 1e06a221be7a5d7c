import { ImgbatchError } from "../../contract/errors.ts";
import { formatUsd } from "../../kernel/money.ts";
import { counted } from "../../kernel/text.ts";
import type { ChosenModel } from "../../runs/plan/choose-model.ts";
import type { Chunk } from "../../runs/plan/plan.ts";
import type { RunOptions } from "./run-options.ts";

/** The price and the cost limit of a run. Amounts are micro-dollars. */
export interface Budget {
  /** Null if the price of an image is not known. */
  estimate(chunks: readonly Chunk[]): number | null;
  estimateImages(images: number): number | null;
  /** Throws `COST_LIMIT` if these batches would cost more than `--max-cost`. */
  approve(chunks: readonly Chunk[]): void;
  approveImages(images: number): void;
}

/** Throws `USAGE` if there is a limit but no price. */
export function createBudget(
  options: Pick<RunOptions, "maxCostMicroUsd" | "unitCostMicroUsd">,
  model: ChosenModel,
): Budget {
  const unit = options.unitCostMicroUsd ?? model.imageCostMicroUsd;
  const max = options.maxCostMicroUsd;
  if (max !== undefined && unit === null) {
    const message = `The service does not publish the price of an image of ${model.id}: add --unit-cost for --max-cost.`;
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

/** Returns the number of images that these batches make. */
export function imagesOf(chunks: readonly Chunk[]): number {
  return chunks.reduce((sum, chunk) => sum + chunk.imageCount, 0);
}
