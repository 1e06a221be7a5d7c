import type { ListEnvelope } from "../../contract/batch-api.ts";
import type {
  AccountObject,
  LedgerEntryObject,
  OverviewObject,
  UsageObject,
} from "../../contract/console-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { fetchJson } from "./request.ts";

export function getAccount(signal: AbortSignal): Promise<AccountObject> {
  return fetchJson(PATHS.account, { signal });
}

/** The payments of the key in the last 30 days, by day and model. */
export async function getUsage(signal: AbortSignal): Promise<UsageObject[]> {
  return (await fetchJson<ListEnvelope<UsageObject>>(PATHS.usage, { signal })).data;
}

/** A page of the movements of money, the newest first. */
export function getLedger(limit: number, signal: AbortSignal, cursor?: string) {
  const query = new URLSearchParams({ limit: String(limit), ...(cursor === undefined ? {} : { cursor }) });
  return fetchJson<ListEnvelope<LedgerEntryObject>>(`${PATHS.ledger}?${query}`, { signal });
}

/** The whole service; for its owner only. */
export function getOverview(signal: AbortSignal): Promise<OverviewObject> {
  return fetchJson(PATHS.consoleService, { signal });
}
