import { ImgbatchError } from "../../../contract/errors.ts";
import type { ChosenRealtimeModel } from "../../../runs/generate/choose-realtime-model.ts";
import type { CommandContext } from "../../command-line/command-context.ts";
import { type Budget, createBudget } from "../../runs/budget.ts";
import type { ConnectedService } from "../../service/with-service.ts";
import type { GenerateOptions } from "./options.ts";

/** Returns the budget of real-time images. Throws `USAGE` if there is a limit but no price. */
export function realtimeBudget(
  { maxCostMicroUsd }: Pick<GenerateOptions, "maxCostMicroUsd">,
  model: ChosenRealtimeModel,
  service: Pick<ConnectedService, "kind">,
  context: CommandContext,
): Budget {
  if (maxCostMicroUsd !== undefined && model.imageCostMicroUsd === null) {
    const message = `--max-cost: the service does not publish the price of an image of ${model.id}.`;
    throw new ImgbatchError("USAGE", message, { param: "--max-cost" });
  }
  const options = { maxCostMicroUsd, unitCostMicroUsd: undefined };
  return createBudget(options, { ...model, imageHoldMicroUsd: model.imageCostMicroUsd }, service, context);
}
