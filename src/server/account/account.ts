import type { Request, Response } from "express";
import type { AccountObject } from "../../contract/console-api.ts";
import type { Limits } from "../../contract/limits.ts";
import type { AccountRecord } from "../../domain/records.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { payingAccounts } from "./accounts.ts";

/** `GET /v1/account`: the money of the key's account, and how much fits into one request. */
export function account({ stores, isOwnerKey, limits }: Pick<ApiDeps, "stores" | "isOwnerKey" | "limits">) {
  return async (_request: Request, response: Response): Promise<void> => {
    const { id, name, prefix, accountId } = callerOf(response).key;
    const [own, real] = await stores.snapshot((now) => payingAccounts(now, accountId));
    const view: AccountObject = {
      object: "account",
      ...moneyOf(own),
      play_money: own.isPlay,
      real_money: real ? moneyOf(real) : null,
      key: { name, prefix },
      owner: isOwnerKey(id),
      limits: limitsView(limits),
    };
    response.json(view);
  };
}

function limitsView(limits: Limits): AccountObject["limits"] {
  return {
    items_per_batch: limits.itemsPerBatch,
    output_images_per_batch: limits.outputImagesPerBatch,
    output_count_per_item: limits.outputCountPerItem,
    prompt_chars: limits.promptChars,
    reference_image_bytes: limits.referenceImageBytes,
    reference_images_per_batch: limits.referenceImagesPerBatch,
    reference_bytes_per_batch: limits.referenceBytesPerBatch,
    create_body_bytes: limits.createBodyBytes,
    zip_items: limits.zipItems,
  };
}

function moneyOf({ balanceMicroUsd, heldMicroUsd }: AccountRecord) {
  return { balance: microsToNumber(balanceMicroUsd), held: microsToNumber(heldMicroUsd) };
}
