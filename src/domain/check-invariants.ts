import { isTerminal } from "../contract/statuses.ts";
import { groupBy } from "../kernel/json.ts";
import { TRANSITIONS } from "./batches/lifecycle.ts";
import { isIntact, readAhead } from "./downloads/piece-stream.ts";
import type { BlobStore } from "./ports/blob-store.ts";
import type { Repositories, Stores } from "./ports/stores.ts";
import type {
  AccountRecord,
  BatchEvent,
  BatchRecord,
  LedgerEntry,
  OutputRecord,
  UsageRecord,
} from "./records.ts";
import { expiringProblems } from "./retention.ts";

type ItemTotal = Awaited<ReturnType<Repositories["items"]["totals"]>>[number];

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

/** Returns what is wrong with an account, and with the money of its batches and real-time requests. */
async function accountProblems(
  now: Repositories,
  account: AccountRecord,
  batches: readonly BatchRecord[],
): Promise<string[]> {
  const isOwn = ({ accountId }: { accountId: string }) => accountId === account.id;
  const entries = await now.ledger.list({ accountId: account.id });
  const holds = (await now.realtimeHolds.list()).filter(isOwn);
  const usage = groupBy(await now.usage.list({ accountId: account.id }), ({ realtimeId }) => realtimeId);
  const open = batches.filter(({ settledAtMs }) => settledAtMs === null);
  const unfinished = open.reduce((sum, { holdMicroUsd }) => sum + holdMicroUsd, 0) + amountOf(holds);
  const balance = entries.reduce((sum, entry) => sum + entry.balanceChangeMicroUsd, 0);
  const held = entries.reduce((sum, entry) => sum + entry.heldChangeMicroUsd, 0);
  const wrong = (what: string, is: number, should: number) =>
    is === should ? [] : [`account ${account.name}: ${what} is ${is}, should be ${should} (micro-dollars)`];
  const moved = sumsByHolder(entries);
  const sumsOf = (id: string) => moved.get(id) ?? NOTHING;
  const batchIds = new Set(batches.map(({ id }) => id));
  const requests = new Set([...moved.keys(), ...holds.map(({ id }) => id), ...usage.keys()]);
  return [
    ...wrong("balance", account.balanceMicroUsd, balance),
    ...wrong("held amount", account.heldMicroUsd, held),
    ...wrong("held amount against unfinished work", held, unfinished),
    ...(account.balanceMicroUsd < 0 ? [`account ${account.name}: the balance is negative`] : []),
    ...batches.flatMap((batch) =>
      moneyProblems(batch, sumsOf(batch.id)).map((what) => `batch ${batch.id}: ${what}`),
    ),
    ...[...requests]
      .filter((id) => !batchIds.has(id))
      .flatMap((id) => {
        const hold = holds.find((each) => each.id === id);
        const problems = requestProblems(sumsOf(id), hold, usage.get(id));
        return problems.map((what) => `real-time request ${id}: ${what}`);
      }),
  ];
}

type Sums = Record<Exclude<LedgerEntry["kind"], "top_up">, number>;
const NOTHING: Sums = { hold: 0, capture: 0, release: 0, charge: 0, grant: 0, take_back: 0 };

/** Returns what was moved for each batch and each real-time request, by its id. */
function sumsByHolder(entries: readonly LedgerEntry[]): Map<string, Sums> {
  const sums = new Map<string, Sums>();
  for (const { kind, batchId, requestId, amountMicroUsd } of entries) {
    if (kind === "top_up") continue;
    const id = batchId ?? requestId.slice(kind.length + 1);
    const sum = sums.get(id) ?? { ...NOTHING };
    sum[kind] += amountMicroUsd;
    sums.set(id, sum);
  }
  return sums;
}

const amountOf = (records: readonly { amountMicroUsd: number }[]) =>
  records.reduce((sum, { amountMicroUsd }) => sum + amountMicroUsd, 0);

const unless = (isRight: boolean, what: string) => (isRight ? [] : [what]);

/** A hold is open, or was captured and released in full. What was granted for it is taken back as far as it was released. */
function holdProblems({ hold, capture, release, grant, take_back: takenBack }: Sums, open: number): string[] {
  const rest = grant === 0 ? 0 : release;
  return [
    ...unless(
      hold === capture + release + open,
      `hold ${hold} is not capture ${capture} + release ${release} + open ${open}`,
    ),
    ...unless(grant === 0 || grant === hold, `granted ${grant}, should be ${hold} or nothing`),
    ...unless(takenBack === rest, `taken back ${takenBack}, should be ${rest}`),
  ];
}

function moneyProblems(batch: BatchRecord, sums: Sums): string[] {
  const { holdMicroUsd, actualMicroUsd: actual } = batch;
  const hasEnded = isTerminal(batch.status);
  return [
    ...unless(sums.hold === holdMicroUsd, `held ${sums.hold}, should be ${holdMicroUsd}`),
    ...holdProblems(sums, hasEnded ? 0 : holdMicroUsd),
    ...unless(!hasEnded || sums.capture === actual, `captured ${sums.capture}, the batch says ${actual}`),
  ];
}

/** The captured amount is that of the usage records. After a release in full, it was charged instead. */
function requestProblems(
  sums: Sums,
  open: { amountMicroUsd: number } | undefined,
  usage: readonly UsageRecord[] = [],
): string[] {
  const { hold, capture, release, charge } = sums;
  const used = amountOf(usage);
  const paid = charge === 0 ? `captured ${capture}` : `captured ${capture} and charged ${charge}`;
  return [
    ...holdProblems(sums, open?.amountMicroUsd ?? 0),
    ...unless(capture + charge === used, `${paid}, its usage records say ${used}`),
    ...unless(charge === 0 || release === hold, `charged ${charge}, and released ${release} of ${hold}`),
    ...unless(open === undefined || usage.length === 0, "has images and its hold is open"),
  ];
}

/** Returns what is wrong with the items and the history of each batch, in their order. */
async function batchProblems(now: Repositories, batches: readonly BatchRecord[]): Promise<string[]> {
  const ids = batches.map(({ id }) => id);
  const totals = groupBy(await now.items.totals(ids), ({ batchId }) => batchId);
  const events = groupBy(await now.batches.events(...ids), ({ batchId }) => batchId);
  return batches.flatMap((batch) => {
    const problems = [
      ...countProblems(batch, totals.get(batch.id) ?? []),
      ...historyProblems(batch, events.get(batch.id) ?? []),
    ];
    return problems.map((what) => `batch ${batch.id}: ${what}`);
  });
}

function countProblems(batch: BatchRecord, totals: readonly ItemTotal[]): string[] {
  const counts = { pending: 0, success: 0, failed: 0 };
  for (const { status, count } of totals) counts[status] = count;
  const { pending, success, failed } = counts;
  const total = pending + success + failed;
  return [
    ...(total === batch.itemCount
      ? sumProblems(batch, totals)
      : [`${total} items, should be ${batch.itemCount}`]),
    ...unless(
      success === batch.successCount && failed === batch.failCount,
      "its counts of successes and failures are wrong",
    ),
    ...unless(pending === 0 || !isTerminal(batch.status), `ended with ${pending} pending items`),
  ];
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
    unless(is === should, `${what} is ${is}, its items make ${should}`);
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
  return unless(isAllowed && isHere, `its history does not lead to ${batch.status}`);
}
