import { amountText, microsToNumber } from "../../../../kernel/money.ts";
import type { Account } from "../../../../service/admin.ts";
import { type Column, tableLines } from "../../../terminal/table.ts";
import { formatMoment, toSeconds } from "../dates.ts";

/** An account in `--json`. `balance` is the amount that can be spent now, without the held amount. */
export function accountView({ name, balanceMicroUsd, heldMicroUsd, isPlay, createdAtMs }: Account): object {
  return {
    name,
    balance: microsToNumber(balanceMicroUsd),
    held: microsToNumber(heldMicroUsd),
    ...(isPlay ? { play: true, play_money: true } : {}),
    created_at: toSeconds(createdAtMs),
  };
}

const COLUMNS: readonly Column<Account>[] = [
  { title: "name", of: ({ name }) => name },
  {
    title: "balance",
    align: "right",
    of: ({ balanceMicroUsd: micros, isPlay }) => amountText({ micros, isPlay }),
  },
  { title: "held", align: "right", of: ({ heldMicroUsd: micros, isPlay }) => amountText({ micros, isPlay }) },
  { title: "created", of: ({ createdAtMs }) => formatMoment(createdAtMs) },
];

export function accountLines(accounts: readonly Account[]): string[] {
  return tableLines(COLUMNS, accounts);
}
