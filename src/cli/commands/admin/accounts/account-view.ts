import { formatUsd, microsToNumber } from "../../../../kernel/money.ts";
import type { Account } from "../../../../service/admin.ts";
import { type Column, tableLines } from "../../../terminal/table.ts";
import { formatMoment, toSeconds } from "../dates.ts";

/** An account in `--json`. `balance` is the amount that can be spent now, without the held amount. */
export function accountView({ name, balanceMicroUsd, heldMicroUsd, isPlay, createdAtMs }: Account): object {
  return {
    name,
    balance: microsToNumber(balanceMicroUsd),
    held: microsToNumber(heldMicroUsd),
    ...(isPlay ? { play: true } : {}),
    created_at: toSeconds(createdAtMs),
  };
}

const COLUMNS: readonly Column<Account>[] = [
  { title: "name", of: ({ name }) => name },
  { title: "balance", align: "right", of: ({ balanceMicroUsd }) => formatUsd(balanceMicroUsd) },
  { title: "held", align: "right", of: ({ heldMicroUsd }) => formatUsd(heldMicroUsd) },
  { title: "created", of: ({ createdAtMs }) => formatMoment(createdAtMs) },
];

export function accountLines(accounts: readonly Account[]): string[] {
  return tableLines(COLUMNS, accounts);
}
