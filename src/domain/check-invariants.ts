import { BATCH_STATUSES, type BatchStatus, isTerminal } from "../contract/statuses.ts";
import { TRANSITIONS } from "./batches/lifecycle.ts";
import { readAhead } from "./downloads/read-ahead.ts";
import { isIntact } from "./downloads/read-intact.ts";
import { fileProblems } from "./files/check-files.ts";
import { linkProblems } from "./links/linked-images.ts";
import type { BlobStore } from "./ports/blob-store.ts";
import type { Repositories, Stores } from "./ports/stores.ts";
import { realtimeHeld, realtimeMoneyProblems } from "./realtime/check-money.ts";
import { answerProblems } from "./realtime/kept-answers.ts";
import type { AccountRecord, BatchRecord, OutputRecord } from "./records.ts";

export interface CheckReport {
  accounts: number;
  batches: number;
  images: number;
  /** One line for each broken invariant; empty when there is none. */
  problems: string[];
}

/** Verifies everything that must always be true of money, batches, items and files. Changes nothing. */
export async function checkInvariants(stores: Stores, blobs: BlobStore): Promise<CheckReport> {
  const { outputs, ...report } = await stores.snapshot(async (now) => {
    const accounts = await now.accounts.list();
    const batches = await now.batches.all();
    const problems: string[] = [];
    for (const account of accounts) problems.push(...(await accountProblems(now, account, batches)));
    problems.push(...statusProblems(await now.batches.countByStatus(), batches));
    const outputs: OutputRecord[] = [];
    for (const batch of batches) {
      problems.push(...(await moneyProblems(now, batch)));
      problems.push(...(await countProblems(now, batch)));
      problems.push(...(await historyProblems(now, batch)));
      if (batch.status === "output_deleted") continue;
      for (const output of await now.outputs.ofBatch(batch.id)) outputs.push(output);
    }
    return { accounts: accounts.length, batches: batches.length, problems, outputs };
  });
  const read = async (output: OutputRecord) => ({ output, isGood: await isIntact(blobs, output) });
  const images = readAhead(outputs, { sizeOf: ({ sizeBytes }) => sizeBytes, read });
  for await (const { output, isGood } of images) {
    const { batchId, itemId, blobKey } = output;
    if (isGood) continue;
    if ((await stores.read.batches.byId(batchId))?.status === "output_deleted") continue;
    if ((await stores.read.outputs.ofItem(itemId)).length === 0) continue;
    const isMissing = (await blobs.sizeOf(blobKey)) === null;
    report.problems.push(`batch ${batchId}: the image ${blobKey} is ${isMissing ? "missing" : "damaged"}`);
  }
  report.problems.push(...(await fileProblems(stores, blobs)));
  report.problems.push(...(await linkProblems({ stores, blobs })));
  report.problems.push(...(await answerProblems({ stores, blobs })));
  return { ...report, images: outputs.length };
}

async function accountProblems(
  repositories: Repositories,
  account: AccountRecord,
  batches: readonly BatchRecord[],
): Promise<string[]> {
  const entries = await repositories.ledger.list({ accountId: account.id });
  const balance = entries.reduce((sum, entry) => sum + entry.balanceChangeMicroUsd, 0);
  const held = entries.reduce((sum, entry) => sum + entry.heldChangeMicroUsd, 0);
  const open = batches.filter((b) => b.accountId === account.id && b.settledAtMs === null);
  const heldForBatches = open.reduce((sum, batch) => sum + batch.holdMicroUsd, 0);
  const expected = heldForBatches + (await realtimeHeld(repositories, account.id));
  const say = (what: string, is: number, should: number) =>
    is === should ? [] : [`account ${account.name}: ${what} is ${is}, should be ${should} (micro-dollars)`];
  return [
    ...say("balance", account.balanceMicroUsd, balance),
    ...say("held amount", account.heldMicroUsd, held),
    ...say("held amount against unfinished work", held, expected),
    ...(account.balanceMicroUsd < 0 ? [`account ${account.name}: the balance is negative`] : []),
    ...(await realtimeMoneyProblems(repositories, account)),
  ];
}

function statusProblems(
  counts: Partial<Record<BatchStatus, number>>,
  batches: readonly BatchRecord[],
): string[] {
  return BATCH_STATUSES.flatMap((status) => {
    const count = batches.filter((batch) => batch.status === status).length;
    const keptCount = counts[status] ?? 0;
    return count === keptCount ? [] : [`${keptCount} batches are counted as ${status}, should be ${count}`];
  });
}

async function moneyProblems(repositories: Repositories, batch: BatchRecord): Promise<string[]> {
  const entries = await repositories.ledger.list({ batchId: batch.id });
  const sumOf = (kind: string) =>
    entries.filter((entry) => entry.kind === kind).reduce((sum, entry) => sum + entry.amountMicroUsd, 0);
  const [hold, capture, release] = [sumOf("hold"), sumOf("capture"), sumOf("release")];
  const [granted, takenBack] = [sumOf("grant"), sumOf("take_back")];
  const problems: string[] = [];
  const expect = (isRight: boolean, what: string) => {
    if (!isRight) problems.push(`batch ${batch.id}: ${what}`);
  };
  expect(hold === batch.holdMicroUsd, `held ${hold}, should be ${batch.holdMicroUsd}`);
  expect(granted === 0 || granted === hold, `granted ${granted}, should be ${hold} or nothing`);
  const rest = granted === 0 ? 0 : release;
  expect(takenBack === rest, `taken back ${takenBack}, should be ${rest}`);
  if (isTerminal(batch.status)) {
    expect(hold === capture + release, `hold ${hold} is not capture ${capture} + release ${release}`);
    expect(capture === batch.actualMicroUsd, `captured ${capture}, the batch says ${batch.actualMicroUsd}`);
  } else expect(capture + release === 0, "money moved before the batch ended");
  return problems;
}

async function countProblems(repositories: Repositories, batch: BatchRecord): Promise<string[]> {
  const counts = await repositories.items.countByStatus(batch.id);
  const problems: string[] = [];
  const total = counts.pending + counts.success + counts.failed;
  if (total !== batch.itemCount)
    problems.push(`batch ${batch.id}: ${total} items, should be ${batch.itemCount}`);
  else problems.push(...(await sumProblems(repositories, batch)));
  if (counts.success !== batch.successCount || counts.failed !== batch.failCount) {
    problems.push(`batch ${batch.id}: its counts of successes and failures are wrong`);
  }
  if (counts.pending > 0 && isTerminal(batch.status)) {
    problems.push(`batch ${batch.id}: ended with ${counts.pending} pending items`);
  }
  return problems;
}

/** The amounts of a batch are the sums over its items. */
async function sumProblems(repositories: Repositories, batch: BatchRecord): Promise<string[]> {
  const sums = await repositories.items.sums(batch.id, batch.price);
  const compare = (what: string, is: number | null, should: number) =>
    is === should ? [] : [`batch ${batch.id}: ${what} is ${is}, its items make ${should}`];
  return [
    ...compare("its hold", batch.holdMicroUsd, sums.holdMicroUsd),
    ...compare("its estimate", batch.estimatedMicroUsd, sums.priceMicroUsd),
    ...(isTerminal(batch.status) ? compare("its cost", batch.actualMicroUsd, sums.earnedMicroUsd) : []),
  ];
}

/** The history begins with `queued`, every step is an allowed one, and it ends where the batch is. */
async function historyProblems(repositories: Repositories, batch: BatchRecord): Promise<string[]> {
  const events = await repositories.batches.events(batch.id);
  const isAllowed = events.every(({ from, to }, i) => {
    if (i === 0) return from === null && to === "queued";
    if (from === null || from !== events[i - 1]?.to) return false;
    return TRANSITIONS.some((t) => t.to === to && t.from.includes(from));
  });
  const isHere = events.at(-1)?.to === batch.status;
  return isAllowed && isHere ? [] : [`batch ${batch.id}: its history does not lead to ${batch.status}`];
}
