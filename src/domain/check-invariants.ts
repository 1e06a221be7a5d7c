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
  RealtimeHoldRecord,
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

/** So many batches are one statement of the database: larger ones could exceed the time that a server gives to one. */
const AT_ONCE = 2000;

/** The steps of a history that the lifecycle allows. */
const STEPS = TRANSITIONS.flatMap(({ from, to }) => from.map((each) => `${each}>${to}`));

/** Yields the batches that may be wrong, in windows of all batches. `done`: how many percent come before the end of the window. */
export async function* doubtfulBatches(now: Pick<Repositories, "audit">) {
  const lastSeq = await now.audit.lastSeq();
  for (let afterSeq = 0; afterSeq < lastSeq; afterSeq += AT_ONCE) {
    const window = { afterSeq, toSeq: afterSeq + AT_ONCE };
    const done = Math.min(100, Math.floor((100 * window.toSeq) / lastSeq));
    yield { window, batches: await now.audit.doubtful(STEPS, window), done };
  }
}

/**
 * Verifies everything that must always be true of money, batches, items and files. Changes nothing. The database finds the
 * batches that may be wrong, and only these are read. `onProgress` is called when a step begins or has come further.
 */
export async function checkInvariants(
  stores: Stores,
  blobs: BlobStore,
  onProgress: (text: string) => void = () => {},
): Promise<CheckReport> {
  onProgress("checking money and batches");
  const { outputs, ...report } = await stores.snapshot(async (now) => {
    const accounts = await now.accounts.list();
    const sums = new Map((await now.audit.accounts()).map((each) => [each.accountId, each]));
    const holds = groupBy(await now.realtimeHolds.list(), ({ accountId }) => accountId);
    const problems: string[] = [];
    for (const account of accounts)
      problems.push(...(await accountProblems(now, account, sums.get(account.id), holds.get(account.id))));
    const outputs: OutputRecord[] = [];
    for await (const { window, batches, done } of doubtfulBatches(now)) {
      onProgress(`checking money and batches: ${done} %`);
      if (batches.length > 0) problems.push(...(await batchProblems(now, batches)));
      for (const { batchId, customId, lost } of await now.audit.lostOutputs(window))
        problems.push(`batch ${batchId}: ${lost} of the images of ${customId} are lost: nothing names them`);
      for (const output of await now.audit.keptOutputs(window)) outputs.push(output);
    }
    const batches = [...sums.values()].reduce((sum, each) => sum + each.batches, 0);
    return { accounts: accounts.length, batches, problems, outputs };
  });
  const read = async (output: OutputRecord) => ({ output, isGood: await isIntact(blobs, output) });
  const images = readAhead(outputs, { sizeOf: ({ sizeBytes }) => sizeBytes, read });
  let done = 0;
  for await (const { output, isGood } of images) {
    onProgress(`reading images: ${++done} of ${outputs.length}`);
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

type AccountSums = Awaited<ReturnType<Repositories["audit"]["accounts"]>>[number];

/** Returns what is wrong with an account, and with the money of its real-time requests. */
async function accountProblems(
  now: Repositories,
  account: AccountRecord,
  sums: AccountSums | undefined,
  openHolds: readonly RealtimeHoldRecord[] = [],
): Promise<string[]> {
  const { balanceMicroUsd = 0, heldMicroUsd = 0, openMicroUsd = 0 } = sums ?? {};
  const holds = new Map(openHolds.map((hold) => [hold.id, hold]));
  const usage = groupBy(await now.usage.list({ accountId: account.id }), ({ realtimeId }) => realtimeId);
  const wrong = (what: string, is: number, should: number) =>
    is === should ? [] : [`account ${account.name}: ${what} is ${is}, should be ${should} (micro-dollars)`];
  const moved = sumsByHolder(await now.audit.requestEntries(account.id));
  const requests = new Set([...moved.keys(), ...holds.keys(), ...usage.keys()]);
  return [
    ...wrong("balance", account.balanceMicroUsd, balanceMicroUsd),
    ...wrong("held amount", account.heldMicroUsd, heldMicroUsd),
    ...wrong("held amount against unfinished work", heldMicroUsd, openMicroUsd + amountOf(openHolds)),
    ...(account.balanceMicroUsd < 0 ? [`account ${account.name}: the balance is negative`] : []),
    ...[...requests].flatMap((id) => {
      const problems = requestProblems(moved.get(id) ?? NOTHING, holds.get(id), usage.get(id));
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

/** Returns what is wrong with the money, the items and the history of each batch, in their order. */
async function batchProblems(now: Repositories, batches: readonly BatchRecord[]): Promise<string[]> {
  const ids = batches.map(({ id }) => id);
  const totals = groupBy(await now.items.totals(ids), ({ batchId }) => batchId);
  const events = groupBy(await now.batches.events(...ids), ({ batchId }) => batchId);
  const entries = groupBy(await now.ledger.list({ batchIds: ids }), ({ batchId }) => batchId ?? "");
  return batches.flatMap((batch) => {
    const own = (entries.get(batch.id) ?? []).filter(({ accountId }) => accountId === batch.accountId);
    const problems = [
      ...moneyProblems(batch, sumsByHolder(own).get(batch.id) ?? NOTHING),
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
