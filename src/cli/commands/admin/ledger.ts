import { formatUsd, microsToNumber } from "../../../kernel/money.ts";
import type { Admin, LedgerLine } from "../../../service/admin.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { textOption } from "../../command-line/option-values.ts";
import type { Whereabouts } from "../../result/next-command.ts";
import { resolveTarget } from "../../runs/targets.ts";
import { type Column, tableLines } from "../../terminal/table.ts";
import { unknownAccount, wrongArgument } from "./arguments.ts";
import { formatMoment, toSeconds } from "./dates.ts";
import { done, withAdmin } from "./with-admin.ts";

/** `imgbatch admin ledger`: every movement of money, oldest first. */
export const run: RunCommand = (context) =>
  withAdmin(context, { mayCreate: false }, async (admin) => {
    const accountName = textOption(context.options, "account");
    const batch = textOption(context.options, "batch");
    const accountId =
      accountName === undefined ? undefined : await accountIdOf(admin, accountName, context.global);
    const batchIds = batch === undefined ? undefined : await batchIdsOf(admin, batch, context.cwd);
    const entries = await admin.ledger({ accountId, batchIds });
    return done({ entries: entries.map(entryView) }, tableLines(COLUMNS, entries));
  });

async function accountIdOf(admin: Admin, name: string, where: Whereabouts): Promise<string> {
  const account = await admin.account(name);
  if (!account) throw await unknownAccount("--account", name, admin, where);
  return account.id;
}

async function batchIdsOf(admin: Admin, batch: string, cwd: string): Promise<string[]> {
  const { ids } = await resolveTarget(batch, cwd);
  for (const id of ids) {
    if (!(await admin.hasBatch(id)))
      throw wrongArgument("--batch", id, "no batch of this directory has this id");
  }
  return ids;
}

function entryView(entry: LedgerLine): object {
  return {
    seq: entry.seq,
    kind: entry.kind,
    amount: microsToNumber(entry.amountMicroUsd),
    balance_change: microsToNumber(entry.balanceChangeMicroUsd),
    held_change: microsToNumber(entry.heldChangeMicroUsd),
    account: entry.accountName,
    ...(entry.isPlay ? { play_money: true } : {}),
    batch_id: entry.batchId,
    request_id: entry.requestId,
    created_at: toSeconds(entry.createdAtMs),
  };
}

/** Without a sign of dollars for play money, which the name of the account tells. */
const shown = (micros: number, { isPlay }: LedgerLine) =>
  isPlay ? formatUsd(micros).replace("$", "") : formatUsd(micros);
const change = (micros: number, line: LedgerLine) => `${micros > 0 ? "+" : ""}${shown(micros, line)}`;

/** The batch or the real-time request that caused the entry. */
function whatFor({ batchId, kind, requestId }: LedgerLine): string {
  return batchId ?? (kind === "top_up" ? "" : requestId.slice(requestId.indexOf(":") + 1));
}

/** `balance` is the account's balance after the entry. Entries that a filter leaves out count too. */
const COLUMNS: readonly Column<LedgerLine>[] = [
  { title: "seq", align: "right", of: ({ seq }) => String(seq) },
  { title: "time", of: ({ createdAtMs }) => formatMoment(createdAtMs) },
  {
    title: "account",
    of: ({ accountName, isPlay }) => (isPlay ? `${accountName} (play money)` : accountName),
  },
  { title: "kind", of: ({ kind }) => kind },
  { title: "change", align: "right", of: (line) => change(line.balanceChangeMicroUsd, line) },
  { title: "held", align: "right", of: (line) => change(line.heldChangeMicroUsd, line) },
  { title: "balance", align: "right", of: (line) => shown(line.balanceMicroUsd, line) },
  { title: "for", of: whatFor },
];
