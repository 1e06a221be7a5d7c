import type { ListedBudget, TakenOptions } from "../client/models.ts";
import { ImgbatchError } from "../contract/errors.ts";
import {
  amountText,
  type Cost,
  costText,
  FREE_DRAWINGS,
  formatUsd,
  microsToDecimal,
  microsToNumber,
  playMoneyField,
  upToCents,
} from "../kernel/money.ts";
import { counted } from "../kernel/text.ts";
import type { Asked, ChosenModel } from "../runs/plan/choose-model.ts";
import type { ImageConsent } from "../runs/send.ts";
import type { CommandContext } from "./command.ts";
import { dryRunOption, moneyOptions } from "./commands/shared-options.ts";
import type { ConnectedService } from "./connect/connection.ts";
import { commandAgain, typedCommand, wordsWithout } from "./output/next-step.ts";

/** The parts of a model that a budget needs. */
interface PricedModel extends Pick<ChosenModel, "id" | "priceOf" | "isPaid" | "isPlay"> {
  /** Null, or left out: it is not known. */
  provider?: string | null;
  options: Pick<TakenOptions, "defaultQuality"> | null;
}

/** The models of a run: `first` makes the images that name none. */
interface PricedModels {
  first: PricedModel;
  isOfLines?: boolean;
  budgets?: readonly ListedBudget[];
  of(image: Asked): PricedModel;
}

type Surroundings = Pick<
  CommandContext,
  "global" | "options" | "cwd" | "typed" | "ask" | "output" | "signal" | "purse"
>;

/** Images of a model in a size and quality. */
interface Group {
  model: PricedModel;
  asked: Asked;
  /** The quality that is used; null if the model has none. */
  quality: string | null;
  count: number;
}

/** Groups the images of a run by what decides their price. */
function grouped(models: PricedModels, images: readonly Asked[]): Group[] {
  const groups = new Map<string, Group>();
  for (const asked of images) {
    const model = models.of(asked);
    const quality = asked.quality ?? model.options?.defaultQuality ?? null;
    const key = JSON.stringify([model.id, asked.size ?? "1K", quality]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { model, asked, quality, count: 1 });
    else group.count++;
  }
  return [...groups.values()];
}

/**
 * Returns the price and the cost limit of a run, in micro-dollars: the sum of the prices of its images. Approving images
 * throws `USAGE` if there is a limit but no price. Consent is for the embedded service alone: any other service has accounts
 * of its own.
 */
export function createBudget(
  options: { maxCostMicroUsd: number | undefined; unitCostMicroUsd: number | undefined },
  models: PricedModels,
  service: Pick<ConnectedService, "kind"> & { upstream?: string | null },
  context: Surroundings,
) {
  const { unitCostMicroUsd: typed, maxCostMicroUsd: max } = options;
  const isElsewhere = service.kind === "remote";
  /** An agent needs the consent of a person at every service that takes real money. */
  const isPaidFor = ({ model }: Group) =>
    isElsewhere ? context.purse !== undefined && !model.isPlay : model.isPaid;
  const unitOf = ({ model, asked }: Group) => typed ?? model.priceOf(asked)?.imageMicroUsd ?? null;
  // The hold is the most that an image can cost.
  const limitOf = (group: Group) =>
    isPaidFor(group) ? (group.model.priceOf(group.asked)?.holdMicroUsd ?? unitOf(group)) : unitOf(group);
  const holdOf = (group: Group) => group.model.priceOf(group.asked)?.holdMicroUsd ?? unitOf(group);
  const isPlay = (groups: readonly Group[]) =>
    typed === undefined && groups.every(({ model }) => model.isPlay);
  /** Throws `COST_LIMIT` if these images would cost more than `--max-cost`. Returns the most that they can cost. */
  const limit = (groups: readonly Group[], asOf: string | null): number | null => {
    const cost = sumOf(groups, limitOf);
    if (max === undefined || groups.length === 0) return cost;
    if (cost === null) {
      const { model } = groups.find((group) => limitOf(group) === null) ?? { model: models.first };
      const message = `The service does not publish the price of an image of ${model.id}: add --unit-cost for --max-cost.`;
      throw new ImgbatchError("USAGE", message, { param: "--unit-cost" });
    }
    if (cost <= max) return cost;
    const agreeing = groups.some(isPaidFor) ? withMaxCost(context, cost) : null;
    const images = groups.reduce((sum, { count }) => sum + count, 0);
    throw aboveLimit({ micros: cost, isPlay: isPlay(groups) }, images, max, agreeing, asOf);
  };
  /** The first batch of a run is sent only when a budget covers all of them. */
  const requireBudgets = (groups: readonly Group[], heldFor: HeldFor) => {
    for (const budget of models.budgets ?? []) requireLeft(budget, groups, holdOf, heldFor(budget.upstream));
  };
  /** Null if the price of an image is not known. */
  const estimateOf = (groups: readonly Group[]): Cost | null => {
    const micros = sumOf(groups, unitOf);
    return micros === null
      ? null
      : { micros, isPlay: groups.length === 0 ? models.first.isPlay : isPlay(groups) };
  };
  return {
    /** The facts of a dry run about what it would cost. */
    facts: (images: readonly Asked[]) => {
      const groups = grouped(models, images);
      const cost = estimateOf(groups);
      const most = sumOf(groups, limitOf);
      return {
        estimated_cost: cost === null ? null : microsToNumber(cost.micros),
        max_cost: most === null ? null : microsToNumber(most),
        ...playMoneyField(cost),
        prices: groups.map((group) => {
          const [unit, { model, asked, quality, count }] = [unitOf(group), group];
          const price = unit === null ? null : microsToNumber(unit);
          return { model: model.id, size: asked.size ?? "1K", quality, image_count: count, price };
        }),
      };
    },
    estimate: (images: readonly Asked[]) => estimateOf(grouped(models, images)),
    /** The lines of a dry run about what it would cost; none when that is not known. */
    estimateLines: (images: readonly Asked[]): string[] => {
      const groups = grouped(models, images);
      const cost = estimateOf(groups);
      if (cost === null) return [];
      if (cost.isPlay) return [FREE_DRAWINGS];
      const most = sumOf(groups, limitOf) ?? cost.micros;
      const held = `${formatUsd(most, "limit")} is held until the images are made: --max-cost must cover it`;
      const sum = [`estimated cost ${costText(cost, "limit")}`, ...(most > cost.micros ? [held] : [])];
      if (groups.length <= MOST_GROUPS)
        return [...groups.map((group) => groupLine(group, unitOf(group))), ...sum];
      return [`  ${eachText(groups.map((group) => unitOf(group) ?? 0))}`, ...sum];
    },
    /** The command that makes the images of a dry run. Where nobody can be asked, it has the agreement to pay. */
    afterDryRun: (images: readonly Asked[]): string => {
      const typed = wordsWithout(context.typed, dryRunOption);
      const groups = grouped(models, images);
      const cost = sumOf(groups, limitOf);
      const mustAgree = max === undefined && context.ask === null && groups.some(isPaidFor);
      return mustAgree && cost !== null ? withMaxCost({ typed }, cost) : typedCommand(typed);
    },
    /**
     * Throws `COST_LIMIT` if the images would cost more than `--max-cost`, with those that are `held` already, and
     * `BATCH_IMAGE_INSUFFICIENT_BALANCE` if they do not fit into a budget of the service. `heldFor`: see `HeldFor`.
     */
    approve: (images: readonly Asked[], held: readonly Asked[] = [], heldFor: HeldFor = () => 0) => {
      limit(grouped(models, [...images, ...held]), null);
      requireBudgets(grouped(models, images), heldFor);
    },
    /**
     * Approves the images, and gets the consent for those that cost real money: `--max-cost`, which counts those that are `held`
     * already, too, or a yes on the terminal. Returns the consent for an image; null if none is needed. Throws `COST_LIMIT`
     * without consent, and like `approve` above a budget.
     */
    consent: async (
      images: readonly Asked[],
      held: readonly Asked[] = [],
      heldFor: HeldFor = () => 0,
    ): Promise<ImageConsent | null> => {
      const groups = grouped(models, images);
      const all = grouped(models, [...images, ...held]);
      requireBudgets(groups, heldFor);
      const paid = groups.filter(isPaidFor);
      if (paid.length === 0) {
        limit(all, null);
        await context.purse?.reserve({ micros: 0, images: 0 });
        return null;
      }
      const { requireOffered } = await import("./model-check.ts");
      let asOf: string | null = null;
      for (const model of new Set(isElsewhere ? [] : paid.map((group) => group.model))) {
        const isChosen = model === models.first && models.isOfLines !== true;
        const old = await requireOffered(context, model.id, service.upstream ?? null, isChosen);
        asOf ??= old;
      }
      const unknown = paid.find((group) => limitOf(group) === null);
      if (unknown !== undefined) {
        const message = `The price of an image of ${unknown.model.id} is not known, and it costs real money: add --unit-cost.`;
        throw new ImgbatchError("USAGE", message, { param: "--unit-cost" });
      }
      const cost = limit(all, asOf);
      if (context.purse !== undefined) {
        const count = paid.reduce((sum, group) => sum + group.count, 0);
        await context.purse.reserve({ micros: sumOf(paid, limitOf) ?? 0, images: count });
        if (isElsewhere) return null;
      } else if (max === undefined) await requireYes(context, paid, { limitOf, asOf, cost: cost ?? 0 });
      return (image) => {
        const [group] = grouped(models, [image]);
        return (group && limitOf(group)) ?? 0;
      };
    },
  };
}

/**
 * Returns what the service may hold in the budget of an upstream (null: of all) for the same images, or for others that they
 * replace, in micro-dollars: it becomes free when the images are asked for. Infinity when that is not known: then the service
 * alone checks its budgets.
 */
export type HeldFor = (upstream: string | null) => number;

/** For images that the service may have taken already, without an answer. */
export const UNKNOWN_HOLD: HeldFor = () => Number.POSITIVE_INFINITY;

/** Throws `BATCH_IMAGE_INSUFFICIENT_BALANCE` for images that need more than a budget has left, as the service would. */
function requireLeft(
  { upstream, per, limitMicroUsd, leftMicroUsd }: ListedBudget,
  groups: readonly Group[],
  holdOf: (group: Group) => number | null,
  heldMicroUsd: number,
): void {
  const counting = groups.filter(
    ({ model }) => !model.isPlay && (upstream === null || upstream === model.provider),
  );
  const needed = sumOf(counting, holdOf) ?? 0;
  if (needed <= leftMicroUsd + heldMicroUsd) return;
  const whose = upstream === null ? "" : ` of ${upstream}`;
  const message = `The budget${whose} is ${formatUsd(limitMicroUsd)} a ${per}: ${formatUsd(leftMicroUsd)} of it is left, and this needs ${formatUsd(needed)} on hold. Nothing was sent.`;
  throw new ImgbatchError("BATCH_IMAGE_INSUFFICIENT_BALANCE", message);
}

/** Null if the price of a group is not known. */
function sumOf(groups: readonly Group[], priceOf: (group: Group) => number | null): number | null {
  let sum = 0;
  for (const group of groups) {
    const price = priceOf(group);
    if (price === null) return null;
    sum += price * group.count;
  }
  return sum;
}

/** Of more groups than these, a dry run says only the range of their prices. */
const MOST_GROUPS = 8;

function groupLine({ model, asked, quality, count }: Group, price: number | null): string {
  const words = [model.id, asked.size ?? "1K", ...(quality === null ? [] : [`quality ${quality}`])];
  return `  ${counted(count, "image")}, ${words.join(", ")}: ${formatUsd(price ?? 0)} each`;
}

/** The qualities behind a price: a word is not one price. */
function qualityNote(groups: readonly Group[]): string {
  const words = [...new Set(groups.flatMap(({ quality }) => quality ?? []))];
  return words.length === 0 ? "" : ` (quality ${words.join(", ")})`;
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
  groups: readonly Group[],
  { limitOf, asOf, cost }: { limitOf: (group: Group) => number | null; asOf: string | null; cost: number },
): Promise<void> {
  const { ask, output, signal } = context;
  const images = groups.reduce((sum, { count }) => sum + count, 0);
  const models = [...new Set(groups.map(({ model }) => model.id))].join(", ");
  const each = eachText(groups.map((group) => limitOf(group) ?? 0));
  const facts = `${counted(images, "image")} with ${models}${qualityNote(groups)} ${images === 1 ? "costs" : "cost"} real money: ${each}${agedNote(asOf)}, up to ${formatUsd(cost, "limit")} in all.`;
  output.settle();
  const isAgreed = ask !== null && /^y(es)?$/i.test(await ask(`${facts} Pay that? [y/N] `, signal));
  if (isAgreed) return;
  const advice = `to agree: ${withMaxCost(context, cost)}`;
  throw new ImgbatchError("COST_LIMIT", `${facts} Nothing was sent.`, { advice });
}

/** The price of an image, or the range of prices, in micro-dollars. */
function eachText(prices: readonly number[]): string {
  const [lowest = 0, ...others] = prices.toSorted((a, b) => a - b);
  const highest = others.at(-1) ?? lowest;
  const range = lowest === highest ? formatUsd(lowest) : `${formatUsd(lowest)} to ${formatUsd(highest)}`;
  return `${range} each`;
}

/** A price that was read long ago carries its date. */
const agedNote = (asOf: string | null) => (asOf === null ? "" : ` (price of ${asOf})`);

function withMaxCost({ typed }: Pick<Surroundings, "typed">, costMicroUsd: number): string {
  return commandAgain(typed, moneyOptions.maxCostMicroUsd, microsToDecimal(upToCents(costMicroUsd)));
}
