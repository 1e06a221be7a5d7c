import type { Repositories } from "../ports/stores.ts";
import type { AccountRecord, LedgerEntry } from "../records.ts";

const MOVEMENTS = ["hold", "capture", "release", "charge", "grant", "take_back"] as const;
type Sums = Record<(typeof MOVEMENTS)[number], number>;
const NOTHING: Sums = { hold: 0, capture: 0, release: 0, charge: 0, grant: 0, take_back: 0 };

/** Returns the sum of the open holds for real-time requests of an account, in micro-dollars. */
export async function realtimeHeld(now: Repositories, accountId: string): Promise<number> {
  const holds = (await now.realtimeHolds.list()).filter((hold) => hold.accountId === accountId);
  return holds.reduce((sum, hold) => sum + hold.amountMicroUsd, 0);
}

/**
 * Checks that every hold of a real-time request is open with its record, or was captured or released in full, and that
 * the captured amounts are those of the usage records, or were charged after a release in full. A granted hold is taken back as far as it was released. `entries`: those of
 * the account. Returns a line for each problem.
 */
export async function realtimeMoneyProblems(
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
