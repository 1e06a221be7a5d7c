import { ImgbatchError } from "../../contract/errors.ts";
import { amountText } from "../../kernel/money.ts";
import type { Transaction } from "../ports/stores.ts";
import type { AccountRecord, BatchRecord, LedgerEntry } from "../records.ts";
import { requireBudget } from "./budget.ts";

type Movement = Pick<LedgerEntry, "requestId" | "accountId" | "batchId" | "kind" | "amountMicroUsd">;

/** The effect of an entry of each kind on the balance and on the held amount, as a factor on its amount. */
const EFFECTS: Record<LedgerEntry["kind"], { balance: 1 | 0 | -1; held: 1 | 0 | -1 }> = {
  top_up: { balance: 1, held: 0 },
  hold: { balance: -1, held: 1 },
  capture: { balance: 0, held: -1 },
  release: { balance: 1, held: -1 },
  charge: { balance: -1, held: 0 },
  grant: { balance: 1, held: 0 },
  take_back: { balance: -1, held: 0 },
};

/** Makes the error for an account whose balance is too low. */
type Refuse = (account: Pick<AccountRecord, "balanceMicroUsd" | "isPlay">) => Error;

/**
 * Adds an entry and changes the account with it: the only writer of money. See LEDGER.md beside this file.
 * Repeating a movement (same request id) changes nothing. Throws the error of `refuse` when the balance would fall
 * below zero; the transaction around it then undoes the entry.
 */
export async function moveMoney(
  tx: Transaction,
  movement: Movement,
  nowMs: number,
  refuse: Refuse = ({ balanceMicroUsd }) =>
    new RangeError(`a balance of ${balanceMicroUsd} micro-dollars is too low`),
): Promise<void> {
  const { amountMicroUsd, accountId } = movement;
  if (!Number.isSafeInteger(amountMicroUsd) || amountMicroUsd < 0) {
    throw new RangeError(`${amountMicroUsd} is no amount of micro-dollars`);
  }
  const effect = EFFECTS[movement.kind];
  const balanceChangeMicroUsd = effect.balance * amountMicroUsd;
  const heldChangeMicroUsd = effect.held * amountMicroUsd;
  // Entries of an account are numbered in the order in which they change it.
  await tx.lock("account", accountId);
  const { isNew } = await tx.ledger.append({
    ...movement,
    balanceChangeMicroUsd,
    heldChangeMicroUsd,
    createdAtMs: nowMs,
  });
  if (!isNew) return;
  const change = { balanceMicroUsd: balanceChangeMicroUsd, heldMicroUsd: heldChangeMicroUsd };
  if ((await tx.accounts.change(accountId, change)).isEnough) return;
  throw refuse((await tx.accounts.byId(accountId)) ?? { balanceMicroUsd: 0, isPlay: false });
}

/** Who has a hold: a batch, or a real-time request. */
interface Holder {
  id: string;
  accountId: string;
}

/**
 * Gives an account the money for one hold, because the person at this machine agreed to pay it. Call it in the hold's
 * transaction, before the hold.
 */
export async function grant(
  tx: Transaction,
  holder: Holder,
  batchId: string | null,
  amountMicroUsd: number,
  nowMs: number,
): Promise<void> {
  const { id, accountId } = holder;
  if (amountMicroUsd === 0) return;
  const movement = { requestId: `grant:${id}`, accountId, batchId, kind: "grant" as const, amountMicroUsd };
  await moveMoney(tx, movement, nowMs);
}

/** Takes back what a hold released, when the hold had been granted. Call it in the same transaction, after the release. */
export async function takeBack(
  tx: Transaction,
  { id }: Holder,
  amountMicroUsd: number,
  nowMs: number,
): Promise<void> {
  const granted = await tx.ledger.byRequestId(`grant:${id}`);
  if (granted === null || amountMicroUsd === 0) return;
  const { accountId, batchId } = granted;
  const kind = "take_back" as const;
  await moveMoney(tx, { requestId: `${kind}:${id}`, accountId, batchId, kind, amountMicroUsd }, nowMs);
}

/** Takes the hold of a new batch out of its account's balance. Throws `BATCH_IMAGE_INSUFFICIENT_BALANCE`, also above a budget. */
export async function placeHold(tx: Transaction, batch: BatchRecord, nowMs: number): Promise<void> {
  const amountMicroUsd = batch.holdMicroUsd;
  const { accountId, provider } = batch;
  await requireBudget(
    tx,
    accountId,
    [{ provider, microUsd: amountMicroUsd }],
    nowMs,
    (message) => new ImgbatchError("BATCH_IMAGE_INSUFFICIENT_BALANCE", message),
  );
  await moveMoney(
    tx,
    { ...movementOf(batch, "hold"), amountMicroUsd },
    nowMs,
    ({ balanceMicroUsd, isPlay }) => {
      const [needed, balance] = [amountMicroUsd, balanceMicroUsd].map((micros) =>
        amountText({ micros, isPlay }),
      );
      const message = `The batch needs ${needed} on hold, the balance is ${balance}.`;
      return new ImgbatchError("BATCH_IMAGE_INSUFFICIENT_BALANCE", message);
    },
  );
}

/**
 * Ends the hold of a batch: the price of its successful images is captured, the rest goes back to the balance, and from
 * there to whoever granted it. Never captures more than was held.
 */
export async function settleHold(
  tx: Transaction,
  batch: BatchRecord,
  actual: number,
  nowMs: number,
): Promise<void> {
  if (actual > batch.holdMicroUsd) {
    throw new Error(`batch ${batch.id}: its images cost more than was held`);
  }
  const rest = batch.holdMicroUsd - actual;
  if (actual > 0) await moveMoney(tx, { ...movementOf(batch, "capture"), amountMicroUsd: actual }, nowMs);
  if (rest > 0) await moveMoney(tx, { ...movementOf(batch, "release"), amountMicroUsd: rest }, nowMs);
  await takeBack(tx, batch, rest, nowMs);
}

function movementOf(batch: BatchRecord, kind: LedgerEntry["kind"]) {
  return { requestId: `${kind}:${batch.id}`, accountId: batch.accountId, batchId: batch.id, kind };
}
