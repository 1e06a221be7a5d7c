import { isTerminal } from "../contract/statuses.ts";
import { groupBy } from "../kernel/json.ts";
import { TRANSITIONS } from "./batches/lifecycle.ts";
import { isIntact, readAhead } from "./downloads/piece-stream.ts";
import type { BlobStore } from "./ports/blob-store.ts";
import type { Repositories, Stores } from "./ports/stores.ts";
import type { AccountRecord, BatchEvent, BatchRecord, LedgerEntry, OutputRecord } from "./records.ts";
import { expiringProblems } from "./retention.ts";

type ItemTotal = Awaited<ReturnType<Repositories["items"]["totals"]>>[number];

const MOVEMENTS = ["hold", "capture", "release", "charge", "grant", "take_back"] as const;
type Sums = Record<(typeof MOVEMENTS)[number], number>;
const NOTHING: Sums = { hold: 0, capture: 0, release: 0, charge: 0, grant: 0, take_back: 0 };

/** Returns the sum of the open holds for real-time requests of an account, in micro-dollars. */
async function realtimeHeld(now: Repositories, accountId: string): Promise<number> {
  const holds = (await now.realtimeHolds.list()).filter((hold) => hold.accountId === accountId);
  return holds.reduce((sum, hold) => sum + hold.amountMicroUsd, 0);
}

/**
 * Checks that every hold of a real-time request is open with its record, or was captured or released in full, and that
 * the captured amounts are those of the usage records, or were charged after a release in full. A granted hold is taken
 * back as far as it was released. `entries`: those of the account. Returns a line for each problem.
 */
async function realtimeMoneyProblems(
  now: Repositories,
  account: AccountRecord,
  entries: readonly LedgerEntry[],
): Promise<string[]> {
  const moved = sumByRequest(entries);
  const open = new Map(
    (await now.realtimeHolds.list()).flatMap((hold) =>
      hold.accountId === account.id ? [[hold.id, hold] as const] : [],
    ),
  );
  const used = new Map<string, number>();
  for (const { realtimeId, amountMicroUsd } of await now.usage.list({ accountId: account.id })) {
    used.set(realtimeId, (used.get(realtimeId) ?? 0) + amountMicroUsd);
  }
  const problems: string[] = [];
  for (const id of new Set([...moved.keys(), ...open.keys(), ...used.keys()])) {
    const expect = (isRight: boolean, what: string) => {
      if (!isRight) problems.push(`real-time request ${id}: ${what}`);
    };
    const { hold, capture, release, charge, grant, take_back: takenBack } = moved.get(id) ?? NOTHING;
    const waiting = open.get(id);
    const openMicroUsd = waiting?.amountMicroUsd ?? 0;
    expect(
      hold === capture + release + openMicroUsd,
      `hold ${hold} is not capture ${capture} + release ${release} + open ${openMicroUsd}`,
    );
    expect(grant === 0 || grant === hold, `granted ${grant}, should be ${hold} or nothing`);
    const rest = grant === 0 ? 0 : release;
    expect(takenBack === rest, `taken back ${takenBack}, should be ${rest}`);
    const usage = used.get(id) ?? 0;
    const paid = charge === 0 ? `captured ${capture}` : `captured ${capture} and charged ${charge}`;
    expect(capture + charge === usage, `${paid}, its usage records say ${usage}`);
    expect(charge === 0 || release === hold, `charged ${charge}, and released ${release} of ${hold}`);
    expect(waiting === undefined || !used.has(id), "has images and its hold is open");
  }
  return problems;
}

function sumByRequest(entries: readonly LedgerEntry[]) {
  const sums = new Map<string, Sums>();
  for (const { batchId, requestId, amountMicroUsd } of entries) {
    const kind = MOVEMENTS.find((movement) => requestId.startsWith(`${movement}:`));
    if (batchId !== null || kind === undefined) continue;
    const id = requestId.slice(kind.length + 1);
    const sum = sums.get(id) ?? { ...NOTHING };
    sum[kind] += amountMicroUsd;
    sums.set(id, sum);
  }
  return sums;
}

interface CheckReport {
  accounts: number;
  batches: number;
  images: number;
  /** One line for each broken invariant; empty when there is none. */
  problems: string[];
}

/** The batches whose items, money and history are read at once. */
const AT_ONCE = 500;

/** Verifies everything that must always be true of money, batches, items and files. Changes nothing. */
export async function checkInvariants(stores: Stores, blobs: BlobStore): Promise<CheckReport> {
  const { outputs, ...report } = await stores.snapshot(async (now) => {
    const accounts = await now.accounts.list();
    const batches = await now.batches.all();
    const problems: string[] = [];
    const ofAccounts = groupBy(batches, ({ accountId }) => accountId);
    for (const account of accounts)
      problems.push(...(await accountProblems(now, account, ofAccounts.get(account.id) ?? [])));
    const outputs: OutputRecord[] = [];
    for (let from = 0; from < batches.length; from += AT_ONCE) {
      const some = batches.slice(from, from + AT_ONCE);
      problems.push(...(await batchProblems(now, some)));
      const kept = some.filter(({ status }) => status !== "output_deleted").map(({ id }) => id);
      for (const output of await now.outputs.ofBatches(kept)) outputs.push(output);
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
  report.problems.push(...(await expiringProblems({ stores, blobs })));
  return { ...report, images: outputs.length };
}

/** `batches`: those of the account. */
async function accountProblems(
  repositories: Repositories,
  account: AccountRecord,
  batches: readonly BatchRecord[],
): Promise<string[]> {
  const entries = await repositories.ledger.list({ accountId: account.id });
  const balance = entries.reduce((sum, entry) => sum + entry.balanceChangeMicroUsd, 0);
  const held = entries.reduce((sum, entry) => sum + entry.heldChangeMicroUsd, 0);
  const open = batches.filter(({ settledAtMs }) => settledAtMs === null);
  const heldForBatches = open.reduce((sum, batch) => sum + batch.holdMicroUsd, 0);
  const expected = heldForBatches + (await realtimeHeld(repositories, account.id));
  const say = (what: string, is: number, should: number) =>
    is === should ? [] : [`account ${account.name}: ${what} is ${is}, should be ${should} (micro-dollars)`];
  return [
    ...say("balance", account.balanceMicroUsd, balance),
    ...say("held amount", account.heldMicroUsd, held),
    ...say("held amount against unfinished work", held, expected),
    ...(account.balanceMicroUsd < 0 ? [`account ${account.name}: the balance is negative`] : []),
    ...(await realtimeMoneyProblems(repositories, account, entries)),
  ];
}

/** Returns what is wrong with each batch, in their order. */
async function batchProblems(now: Repositories, batches: readonly BatchRecord[]): Promise<string[]> {
  const ids = batches.map(({ id }) => id);
  const entries = groupBy(await now.ledger.list({ batchIds: ids }), ({ batchId }) => batchId);
  const totals = groupBy(await now.items.totals(ids), ({ batchId }) => batchId);
  const events = groupBy(await now.batches.events(...ids), ({ batchId }) => batchId);
  return batches.flatMap((batch) => [
    ...moneyProblems(batch, entries.get(batch.id) ?? []),
    ...countProblems(batch, totals.get(batch.id) ?? []),
    ...historyProblems(batch, events.get(batch.id) ?? []),
  ]);
}

function moneyProblems(batch: BatchRecord, entries: readonly LedgerEntry[]): string[] {
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

function countProblems(batch: BatchRecord, totals: readonly ItemTotal[]): string[] {
  const counts = { pending: 0, success: 0, failed: 0 };
  for (const { status, count } of totals) counts[status] = count;
  const problems: string[] = [];
  const total = counts.pending + counts.success + counts.failed;
  if (total !== batch.itemCount)
    problems.push(`batch ${batch.id}: ${total} items, should be ${batch.itemCount}`);
  else problems.push(...sumProblems(batch, totals));
  if (counts.success !== batch.successCount || counts.failed !== batch.failCount) {
    problems.push(`batch ${batch.id}: its counts of successes and failures are wrong`);
  }
  if (counts.pending > 0 && isTerminal(batch.status)) {
    problems.push(`batch ${batch.id}: ended with ${counts.pending} pending items`);
  }
  return problems;
}

/** The amounts of a batch are the sums over its items. */
function sumProblems(batch: BatchRecord, totals: readonly ItemTotal[]): string[] {
  const { imageMicroUsd, holdMicroUsd } = batch.price;
  const sumOf = (amountOf: (total: ItemTotal) => number) =>
    totals.reduce((sum, total) => sum + amountOf(total), 0);
  const priceOf = ({ count, priced, priceMicroUsd }: ItemTotal) =>
    priceMicroUsd + (count - priced) * imageMicroUsd;
  const holdOf = (total: ItemTotal) => total.holdMicroUsd + (total.count - total.held) * holdMicroUsd;
  const earned = sumOf((total) => (total.status === "success" ? priceOf(total) : 0));
  const compare = (what: string, is: number | null, should: number) =>
    is === should ? [] : [`batch ${batch.id}: ${what} is ${is}, its items make ${should}`];
  return [
    ...compare("its hold", batch.holdMicroUsd, sumOf(holdOf)),
    ...compare("its estimate", batch.estimatedMicroUsd, sumOf(priceOf)),
    ...(isTerminal(batch.status) ? compare("its cost", batch.actualMicroUsd, earned) : []),
  ];
}

/** The history begins with `queued`, every step is an allowed one, and it ends where the batch is. */
function historyProblems(batch: BatchRecord, events: readonly BatchEvent[]): string[] {
  const isAllowed = events.every(({ from, to }, i) => {
    if (i === 0) return from === null && to === "queued";
    if (from === null || from !== events[i - 1]?.to) return false;
    return TRANSITIONS.some((t) => t.to === to && t.from.includes(from));
  });
  const isHere = events.at(-1)?.to === batch.status;
  return isAllowed && isHere ? [] : [`batch ${batch.id}: its history does not lead to ${batch.status}`];
}
