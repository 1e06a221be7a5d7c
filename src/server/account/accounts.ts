import type { Response } from "express";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { AccountRecord } from "../../domain/records.ts";
import { callerOf } from "../middleware/authenticate.ts";

/** Returns the accounts that pay for a caller: its own, and behind it the one with real money where its own has play money. */
export async function payingAccounts(
  now: Repositories,
  response: Response,
): Promise<[own: AccountRecord, ...real: AccountRecord[]]> {
  const { accountId } = callerOf(response).key;
  const own = await now.accounts.byId(accountId);
  if (!own) throw new Error(`there is no account ${accountId}`);
  const real = own.realAccountId === null ? null : await now.accounts.byId(own.realAccountId);
  return real ? [own, real] : [own];
}
