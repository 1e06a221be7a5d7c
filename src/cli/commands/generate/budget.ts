import { ImgbatchError } from "../../../contract/errors.ts";
import type { ChosenRealtimeModel } from "../../../runs/plan/choose-model.ts";
import type { CommandContext } from "../../command-line/command-context.ts";
import { createBudget } from "../../runs/budget.ts";
import type { ConnectedService } from "../../service/with-service.ts";
import type { GenerateOptions } from "./options.ts";

/** Gets the consent for real-time images, each with its size: see `Budget.consent`. */
export type RealtimeConsent = (images: readonly { size: string | null }[]) => Promise<number | null>;

/** Notes first whether the images are drawings. Throws `USAGE`, when images are to be approved, if there is a limit but no price. */
export function realtimeConsent(
  { maxCostMicroUsd }: Pick<GenerateOptions, "maxCostMicroUsd">,
  model: ChosenRealtimeModel,
  service: Pick<ConnectedService, "kind" | "noteDrawings">,
  context: CommandContext,
): RealtimeConsent {
  return async (images) => {
    if (images.length > 0) service.noteDrawings();
    const costs = images.map(({ size }) => model.costOf(size));
    const known = costs.filter((cost) => cost !== null);
    const isKnown = known.length === costs.length;
    if (maxCostMicroUsd !== undefined && !isKnown) {
      const message = `--max-cost: the service does not publish the price of an image of ${model.id}.`;
      throw new ImgbatchError("USAGE", message, { param: "--max-cost" });
    }
    const highest = isKnown && known.length > 0 ? Math.max(...new Set(known)) : null;
    const total = isKnown ? known.reduce((sum, cost) => sum + cost, 0) : undefined;
    const priced = { ...model, imageCostMicroUsd: highest, imageHoldMicroUsd: highest };
    const options = { maxCostMicroUsd, unitCostMicroUsd: undefined };
    return createBudget(options, priced, service, context).consent(images.length, total);
  };
}
