import type { Request, Response } from "express";
import type { AccountObject } from "../../contract/console-api/account.ts";
import type { AccountRecord } from "../../domain/records.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { payingAccounts } from "./accounts.ts";

/** `GET /v1/account`: the money of the key's account. */
export function account({ stores, isOwnerKey }: Pick<ApiDeps, "stores" | "isOwnerKey">) {
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
    };
    response.json(view);
  };
}

function moneyOf({ balanceMicroUsd, heldMicroUsd }: AccountRecord) {
  return { balance: microsToNumber(balanceMicroUsd), held: microsToNumber(heldMicroUsd) };
}
