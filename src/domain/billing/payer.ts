import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import type { ImageSize } from "../../contract/image-formats.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import { formatUsd, multiplyToMicros } from "../../kernel/money.ts";
import { DEFAULT_ACCOUNT, openRealAccount } from "../accounts.ts";
import { type GroupEntry, imagePriceUsd, isPaid, type ModelEntry, type Offer } from "../models.ts";
import type { ImageProvider } from "../ports/image-provider.ts";
import type { Stores } from "../ports/stores.ts";
import type { AccountRecord, ApiKeyRecord, BatchRecord } from "../records.ts";

/** What decides the price of an image of a batch. */
interface PricedShape {
  /** Default: 1K. */
  size?: ImageSize | undefined;
  /** Default: the default quality of the model. */
  quality?: string | null;
  /** The kind of its provider. Default: `item`. */
  kind?: ImageProvider["kind"] | undefined;
}

/**
 * Returns the price of one image of a batch and the amount that is held for it. One image's amounts are rounded to a micro-dollar
 * (half up) once; everything else multiplies or adds them. Null when the model has no price at this size.
 */
export function priceBatchImage(
  model: ModelEntry,
  group: GroupEntry,
  providerMultiplier: number,
  { size = "1K", quality = null, kind = "item" }: PricedShape = {},
): BatchRecord["price"] | null {
  const modelPriceUsd = imagePriceUsd(model, size, quality);
  if (modelPriceUsd === undefined) return null;
  const { rateMultiplier: groupMultiplier } = group;
  const batchDiscount = (kind === "job" ? model.jobPrice : null) ?? group.batchDiscount;
  const holdMultiplier = Math.max(group.holdMultiplier, batchDiscount);
  return priceOf({ modelPriceUsd, groupMultiplier, providerMultiplier, batchDiscount, holdMultiplier });
}

/** Returns the amounts that these numbers make. An item of another size has another `modelPriceUsd` than its batch. */
export function priceOf(basis: BatchRecord["price"]["basis"]): BatchRecord["price"] {
  const { modelPriceUsd, groupMultiplier, providerMultiplier, batchDiscount, holdMultiplier } = basis;
  const unit = [modelPriceUsd, groupMultiplier, providerMultiplier];
  return {
    imageMicroUsd: multiplyToMicros([...unit, batchDiscount]),
    holdMicroUsd: multiplyToMicros([...unit, holdMultiplier]),
    basis,
  };
}

/**
 * Returns the price of one real-time image of this size, in micro-dollars: without discount, rounded once. Null when
 * the model has no price at this size.
 */
export function priceRealtimeImage(
  model: ModelEntry,
  size: ImageSize,
  group: GroupEntry,
  providerMultiplier: number,
  quality: string | null = null,
): number | null {
  const price = imagePriceUsd(model, size, quality);
  return price === undefined ? null : multiplyToMicros([price, group.rateMultiplier, providerMultiplier]);
}

/** The account that pays for the images of an offer. */
export interface Payer {
  account: AccountRecord;
  /** The factor on the price of the images: see `rateFor`. */
  rateMultiplier: number;
  /** Whether an upstream makes the images: no play money pays for them. */
  isUpstream: boolean;
  /** See `isPlayMoney`. */
  isPlay: boolean;
  /**
   * The most that the person at this machine agrees to pay. The hold is then granted in the transaction that places it. Null:
   * the account pays.
   */
  consentMicroUsd: number | null;
}

/**
 * Returns the factor on the price of an offer for an account. Free upstreams cost nothing. Beside upstreams, drawings cost
 * play money only. The default account never pays for drawings with real money, which it has if an upstream came first.
 */
export function rateFor(
  { provider, rateMultiplier, isBesideUpstreams }: Offer,
  { isPlay, name }: Pick<AccountRecord, "isPlay" | "name">,
): number {
  const isFree = provider.upstream
    ? !isPaid(provider) || provider.upstream.isPaidApart
    : !isPlay && (isBesideUpstreams || name === DEFAULT_ACCOUNT);
  return isFree ? 0 : rateMultiplier;
}

/** Whether the images of an offer are drawings that cost an account no real money: play money, or nothing. */
export function isPlayMoney(offer: Offer, account: Pick<AccountRecord, "isPlay" | "name">): boolean {
  if (offer.provider.upstream !== undefined) return false;
  return account.isPlay || rateFor(offer, account) === 0;
}

/**
 * Returns who pays for the images of an offer. Upstreams are never paid with play money: such an account has another one
 * for them, which is made when it is missing. A consent counts for images that cost real money.
 */
export async function payerOf(
  deps: { stores: Stores; clock: Clock; ids: Ids },
  caller: { key: ApiKeyRecord; consentMicroUsd?: number | null },
  offer: Offer,
): Promise<Payer> {
  const { stores } = deps;
  const { accountId } = caller.key;
  const own = await stores.read.accounts.byId(accountId);
  if (!own) throw new Error(`there is no account ${accountId}`);
  const needsReal = offer.provider.upstream !== undefined && own.isPlay;
  const account = needsReal
    ? ((own.realAccountId === null ? null : await stores.read.accounts.byId(own.realAccountId)) ??
      (await stores.write((tx) => openRealAccount(tx, deps, accountId))))
    : own;
  return {
    account,
    rateMultiplier: rateFor(offer, own),
    isUpstream: offer.provider.upstream !== undefined,
    isPlay: isPlayMoney(offer, own),
    consentMicroUsd: isPaid(offer.provider) ? (caller.consentMicroUsd ?? null) : null,
  };
}

/** An account has too little real money for a request. */
export class RealMoneyMissing extends ImgbatchError {}

/**
 * Returns the error for a payer that cannot cover a hold. `what` names the work as the subject of a sentence: `The batch`.
 */
export function cannotPay(
  code: ServiceErrorCode,
  what: string,
  holdMicroUsd: number,
  limit: { balanceMicroUsd: number } | { consentMicroUsd: number },
): ImgbatchError {
  const needs = `${what} needs ${formatUsd(holdMicroUsd)} on hold`;
  if ("consentMicroUsd" in limit) {
    const message = `${needs}, more than the ${formatUsd(limit.consentMicroUsd)} that the request agrees to; nothing was made.`;
    return new ImgbatchError(code, message);
  }
  const message = `${needs}, and the balance of real money is ${formatUsd(limit.balanceMicroUsd)}; nothing was made.`;
  return new RealMoneyMissing(code, message);
}
