import type { Repositories } from "../../domain/ports/stores.ts";
import type { AccountRecord } from "../../domain/records.ts";

/** Returns the accounts that pay for a key: its own, and behind it the one with real money where its own has play money. */
export async function payingAccounts(
  now: Repositories,
  accountId: string,
): Promise<[own: AccountRecord, ...real: AccountRecord[]]> {
  const own = await now.accounts.byId(accountId);
  if (!own) throw new Error(`there is no account ${accountId}`);
  const real = own.realAccountId === null ? null : await now.accounts.byId(own.realAccountId);
  return real ? [own, real] : [own];
}
