import { formatUsd } from "../../kernel/money.ts";
import type { Repositories, Transaction } from "../ports/stores.ts";
import type { BudgetRecord, SpentRecord } from "../records.ts";

/** The scope of the budget for all accounts together, and of the one that each account has. */
export const [ALL_ACCOUNTS, EACH_ACCOUNT] = ["data", "account"] as const;
const UPSTREAM = "upstream:";

/** Returns the scope of the budget of one provider. */
export const scopeOfUpstream = (name: string) => `${UPSTREAM}${name}`;
/** Returns the provider that a budget is for; null for one that counts all of them. */
export const upstreamOf = (scope: string) =>
  scope.startsWith(UPSTREAM) ? scope.slice(UPSTREAM.length) : null;

/** Returns the day or the month of UTC that a moment lies in. */
export function periodOf(per: BudgetRecord["per"], nowMs: number): { fromMs: number; beforeMs: number } {
  const now = new Date(nowMs);
  const [year, month] = [now.getUTCFullYear(), now.getUTCMonth()];
  const day = per === "day" ? now.getUTCDate() : 1;
  const after = per === "day" ? Date.UTC(year, month, day + 1) : Date.UTC(year, month + 1, 1);
  return { fromMs: Date.UTC(year, month, day), beforeMs: after };
}

/** A budget with what is spent and held of it in the present period. */
export interface BudgetState extends BudgetRecord {
  fromMs: number;
  beforeMs: number;
  spentMicroUsd: number;
  heldMicroUsd: number;
}

/** Returns how a budget stands. `accountId`: whose money counts for a budget of each account. */
export async function stateOf(
  read: Pick<Repositories, "budgets">,
  budget: BudgetRecord,
  nowMs: number,
  accountId: string | null = null,
): Promise<BudgetState> {
  const period = periodOf(budget.per, nowMs);
  const provider = upstreamOf(budget.scope);
  const counts = (each: SpentRecord) =>
    (provider === null || each.provider === provider) &&
    (budget.scope !== EACH_ACCOUNT || accountId === null || each.accountId === accountId);
  const sum = (all: readonly SpentRecord[]) =>
    all.filter(counts).reduce((total, { microUsd }) => total + microUsd, 0);
  const spentMicroUsd = sum(await read.budgets.spent(period));
  return { ...budget, ...period, spentMicroUsd, heldMicroUsd: sum(await read.budgets.held()) };
}

/** Returns the budgets that the real money of an account counts in, with what is left of each. */
export async function budgetsOf(
  read: Pick<Repositories, "budgets">,
  accountId: string,
  nowMs: number,
): Promise<
  { upstream: string | null; per: BudgetRecord["per"]; limitMicroUsd: number; leftMicroUsd: number }[]
> {
  const states = (await read.budgets.list()).map((budget) => stateOf(read, budget, nowMs, accountId));
  return (await Promise.all(states)).map(({ scope, per, limitMicroUsd, spentMicroUsd, heldMicroUsd }) => {
    const leftMicroUsd = Math.max(0, limitMicroUsd - spentMicroUsd - heldMicroUsd);
    return { upstream: upstreamOf(scope), per, limitMicroUsd, leftMicroUsd };
  });
}

/**
 * Throws the error of `refuse` when a hold of real money exceeds a budget, which undoes its transaction. Call it in that, once the
 * row of its batch or real-time request is written. `held`: its amounts by provider. Play money has no budget.
 */
export async function requireBudget(
  tx: Transaction,
  accountId: string,
  held: readonly Pick<SpentRecord, "provider" | "microUsd">[],
  nowMs: number,
  refuse: (message: string) => Error,
): Promise<void> {
  if (held.every(({ microUsd }) => microUsd === 0)) return;
  const budgets = await tx.budgets.list();
  if (budgets.length === 0 || (await tx.accounts.byId(accountId))?.isPlay !== false) return;
  // Holds of all accounts count: of two transactions, the second sees what the first has held.
  await tx.lock("account", ...(await tx.accounts.list()).map(({ id }) => id));
  for (const budget of budgets) {
    const upstream = upstreamOf(budget.scope);
    const counted = held.filter(({ provider }) => upstream === null || provider === upstream);
    const neededMicroUsd = counted.reduce((sum, { microUsd }) => sum + microUsd, 0);
    if (neededMicroUsd === 0) continue;
    const { limitMicroUsd, per, spentMicroUsd, heldMicroUsd } = await stateOf(tx, budget, nowMs, accountId);
    if (spentMicroUsd + heldMicroUsd <= limitMicroUsd) continue;
    const whose =
      { [ALL_ACCOUNTS]: "", [EACH_ACCOUNT]: " of this account" }[budget.scope] ?? ` of ${upstream}`;
    const used = `${formatUsd(spentMicroUsd)} are spent and ${formatUsd(Math.max(0, heldMicroUsd - neededMicroUsd))} held in this ${per}`;
    throw refuse(
      `The budget${whose} is ${formatUsd(limitMicroUsd)} a ${per}: ${used}, and this needs ${formatUsd(neededMicroUsd)}. Nothing was sent.`,
    );
  }
}
