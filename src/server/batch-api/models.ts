import type { Request, Response } from "express";
import type { BatchModel, ListEnvelope } from "../../contract/batch-api.ts";
import { isPlayMoney, rateFor } from "../../domain/billing/payer.ts";
import { priceBatchImage } from "../../domain/billing/pricing.ts";
import { batchModelsOf, referenceLimit } from "../../domain/models.ts";
import { isPaid } from "../../domain/offers.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { accountOf, callerOf } from "../middleware/authenticate.ts";

/** `GET /v1/images/batches/models`: the models that the caller can use in a batch now, with prices. */
export function models(deps: ApiDeps) {
  return async (_request: Request, response: Response): Promise<void> => {
    const { group } = callerOf(response);
    const account = await accountOf(deps, response);
    const data = batchModelsOf(group, deps.models).flatMap((model): BatchModel[] => {
      const offer = deps.offers.first(model.id);
      if (!offer) return [];
      const price = priceBatchImage(model, group, rateFor(offer, account));
      if (!price) return [];
      const pricing = {
        currency: "usd" as const,
        batch_image: microsToNumber(price.imageMicroUsd),
        batch_hold: microsToNumber(price.holdMicroUsd),
        ...(isPaid(offer.provider) ? { paid: true as const } : {}),
        ...(isPlayMoney(offer, account) ? { play_money: true as const } : {}),
      };
      const max_reference_images = referenceLimit(model);
      const { id } = model;
      return [
        { id, object: "image.batch.model", provider: offer.provider.name, max_reference_images, pricing },
      ];
    });
    const envelope: ListEnvelope<BatchModel> = { object: "list", data, has_more: false, next_cursor: null };
    response.json(envelope);
  };
}
