import { ImgbatchError } from "../contract/errors.ts";
import {
  amountText,
  type Cost,
  costText,
  FREE_DRAWINGS,
  formatUsd,
  microsToDecimal,
  upToCents,
} from "../kernel/money.ts";
import { counted } from "../kernel/text.ts";
import type { ChosenModel } from "../runs/plan/choose-model.ts";
import type { CommandContext } from "./command.ts";
import type { ConnectedService } from "./connect/connection.ts";
import { commandAgain } from "./output/next-step.ts";

/** The parts of a model that a budget needs. */
type PricedModel = Pick<ChosenModel, "id" | "imageCostMicroUsd" | "imageHoldMicroUsd" | "isPaid" | "isPlay">;
type Surroundings = Pick<
  CommandContext,
  "global" | "options" | "cwd" | "typed" | "ask" | "output" | "signal" | "purse"
>;

/**
 * Returns the price and the cost limit of a run, in micro-dollars. Approving images throws `USAGE` if there is a limit but no
 * price. Consent is for the embedded service alone: any other service has accounts of its own.
 */
export function createBudget(
  options: { maxCostMicroUsd: number | undefined; unitCostMicroUsd: number | undefined },
  model: PricedModel,
  service: Pick<ConnectedService, "kind"> & { upstream?: string | null },
  context: Surroundings,
) {
  const unit = options.unitCostMicroUsd ?? model.imageCostMicroUsd;
  const isPlay = model.isPlay && options.unitCostMicroUsd === undefined;
  const max = options.maxCostMicroUsd;
  const needsConsent = model.isPaid && service.kind !== "remote";
  /** An agent needs the consent of a person at any service that takes real money. */
  const isOfPurse = context.purse !== undefined && (service.kind === "remote" ? !isPlay : model.isPaid);
  // The hold is the most that an image can cost.
  const limited = needsConsent || isOfPurse ? (model.imageHoldMicroUsd ?? unit) : unit;
  /** Null if the price of an image is not known. */
  const estimate = (images: number): Cost | null =>
    unit === null ? null : { micros: unit * images, isPlay };
  /** Throws `COST_LIMIT` if these images would cost more than `--max-cost`. */
  const approve = (images: number, costMicroUsd?: number, asOf: string | null = null) => {
    if (max === undefined || images === 0) return;
    if (limited === null) {
      const message = `The service does not publish the price of an image of ${model.id}: add --unit-cost for --max-cost.`;
      throw new ImgbatchError("USAGE", message, { param: "--unit-cost" });
    }
    const cost = costMicroUsd ?? limited * images;
    if (cost <= max) return;
    const agreeing = needsConsent ? withMaxCost(context, cost) : null;
    throw aboveLimit({ micros: cost, isPlay }, images, max, agreeing, asOf);
  };
  /**
   * Approves the images, and gets the consent for those that cost real money: `--max-cost`, or a yes on the terminal.
   * `costMicroUsd` is their price together, where not every image costs the same. Returns the consent for one image;
   * null if none is needed. Throws `COST_LIMIT` without consent.
   */
  const consent = async (images: number, costMicroUsd?: number): Promise<number | null> => {
    if ((!needsConsent && !isOfPurse) || images === 0) {
      approve(images, costMicroUsd);
      return null;
    }
    const { requireOffered } = await import("./model-check.ts");
    const asOf = needsConsent ? await requireOffered(context, model.id, service.upstream ?? null) : null;
    if (limited === null) {
      const message = `The price of an image of ${model.id} is not known, and it costs real money: add --unit-cost.`;
      throw new ImgbatchError("USAGE", message, { param: "--unit-cost" });
    }
    approve(images, costMicroUsd, asOf);
    if (context.purse !== undefined) {
      await context.purse.reserve({ micros: costMicroUsd ?? limited * images, images, model: model.id });
      return needsConsent ? limited : null;
    }
    if (max === undefined)
      await requireYes(context, model.id, images, {
        price: limited,
        asOf,
        cost: costMicroUsd ?? limited * images,
      });
    return limited;
  };
  return { estimate, approve, consent };
}

/** The line of a dry run about what it would cost; none when that is not known. */
export function estimateLine(cost: Cost | null): string[] {
  if (cost === null) return [];
  return [cost.isPlay ? FREE_DRAWINGS : `estimated cost ${costText(cost, "limit")}`];
}

/** `agreeing`: the command that agrees to the cost; null where no consent is needed. */
function aboveLimit(
  cost: Cost,
  images: number,
  maxMicroUsd: number,
  agreeing: string | null,
  asOf: string | null,
): ImgbatchError {
  const [wanted, max] = cost.isPlay
    ? [amountText(cost), microsToDecimal(maxMicroUsd)]
    : [costText(cost, "limit"), formatUsd(maxMicroUsd)];
  const message = `${counted(images, "image")} would cost ${wanted}, more than --max-cost ${max}${agedNote(asOf)}; nothing was sent.`;
  const toAgree = agreeing === null ? undefined : `to agree: ${agreeing}`;
  const advice = cost.isPlay ? "drawings are free of charge: leave out --max-cost" : toAgree;
  return new ImgbatchError("COST_LIMIT", message, { advice });
}

async function requireYes(
  context: Surroundings,
  model: string,
  images: number,
  { price, asOf, cost }: { price: number; asOf: string | null; cost: number },
): Promise<void> {
  const { ask, output, signal } = context;
  const facts = `${counted(images, "image")} with ${model} ${images === 1 ? "costs" : "cost"} real money: ${formatUsd(price)} each${agedNote(asOf)}, up to ${formatUsd(cost, "limit")} in all.`;
  output.settle();
  const isAgreed = ask !== null && /^y(es)?$/i.test(await ask(`${facts} Pay that? [y/N] `, signal));
  if (isAgreed) return;
  const advice = `to agree: ${withMaxCost(context, cost)}`;
  throw new ImgbatchError("COST_LIMIT", `${facts} Nothing was sent.`, { advice });
}

/** A price that was read long ago carries its date. */
const agedNote = (asOf: string | null) => (asOf === null ? "" : ` (price of ${asOf})`);

function withMaxCost({ typed }: Surroundings, costMicroUsd: number): string {
  return commandAgain(typed, "--max-cost", microsToDecimal(upToCents(costMicroUsd)));
}
