import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "../../soak/memory.mjs";
import type { Cluster } from "./cluster.ts";
import type { ClusterClient } from "./customers.ts";

/** Older than any object that may belong to a request under way. */
const AGE_MS = 2 * 3_600_000;
const SWEEP_PATIENCE_MS = 30_000;

/** Checks what must be true of a cluster whose work has all ended, beside what its customers saw. */
export async function judge(cluster: Cluster, client: ClusterClient): Promise<void> {
  const crashed = cluster.members.filter(({ crashes }) => crashes > 0).map(({ name }) => name);
  expect(crashed.length === 0, `ended by themselves: ${crashed.join(" ")}`);
  const { ok, problems } = await cluster.admin("check");
  expect(ok, `admin check: ${JSON.stringify(problems)}`);
  await nothingIsMadeTwice(cluster, client);
  await moneyAddsUp(cluster, client);
  await noObjectIsLeft(cluster);
}

/** For each item and request the upstream has made one image, and one more at most where the mark says so. */
async function nothingIsMadeTwice(cluster: Cluster, client: ClusterClient): Promise<void> {
  const items = await cluster.rows(
    `select prompt, count(*), count(*) filter (where status = 'success'), count(*) filter (where maybe_paid = 'twice')
     from items group by prompt`,
  );
  const keyed = await cluster.rows(
    `select substr(key, 8), 1, count(case when answer like '{"sha256%' then 1 end), case when paid_runs > 1 then 1 else 0 end
     from keyed_requests group by 1, 4`,
  );
  const answered = client.keyed.size + client.givenUp.size;
  expect(keyed.length === answered, `${answered} keys were answered, ${keyed.length} kept`);
  for (const [prompt = "", ...counts] of [...items, ...keyed]) {
    const [asked = 0, successes = 0, marked = 0] = counts.map(Number);
    const made = cluster.upstream.bill.get(prompt)?.length ?? 0;
    const what = `"${prompt}": ${asked} asked for, ${made} made, ${successes} kept, ${marked} marked`;
    expect(made <= asked + marked && made >= successes, what);
  }
}

/** The images have cost as much as is missing from the balance. */
async function moneyAddsUp(cluster: Cluster, client: ClusterClient): Promise<void> {
  const [[used], [balance, held], [paidIn], [batches, realtime]] = (await Promise.all([
    one(cluster, "select count(*) from usage_records"),
    one(cluster, "select sum(balance_micro_usd), sum(held_micro_usd) from accounts"),
    one(cluster, "select sum(amount_micro_usd) from ledger_entries where kind = 'top_up'"),
    one(
      cluster,
      `select (select coalesce(sum(actual_micro_usd), 0) from batches),
              (select coalesce(sum(amount_micro_usd), 0) from usage_records)`,
    ),
  ])) as [number[], number[], number[], number[]];
  expect(used === client.keyed.size, `${client.keyed.size} images in real time, ${used} charges`);
  expect(held === 0, `${held} micro-dollars are still held`);
  const spent = Number(batches) + Number(realtime);
  expect(balance === Number(paidIn) - spent, `${paidIn} paid in, ${spent} spent, the balance is ${balance}`);
}

async function one(cluster: Cluster, query: string): Promise<number[]> {
  return ((await cluster.rows(query))[0] ?? []).map(Number);
}

/** A sweep leaves no old object that nothing names. */
async function noObjectIsLeft(cluster: Cluster): Promise<void> {
  const named = await cluster.rows(
    `select o.blob_key from outputs o join batches b on b.id = o.batch_id where b.status <> 'output_deleted'
     union select blob_key from reference_images where blob_key is not null
     union select 'answers/' || realtime_id from keyed_requests where answer like '{"sha256%'`,
  );
  const keys = new Set(["imgbatch-database", ...named.map(([key]) => key)]);
  for (const deadline = Date.now() + SWEEP_PATIENCE_MS; ; ) {
    const left: string[] = [];
    for (const [key, object] of cluster.s3.objects) {
      if (keys.has(key.replace(/^cluster\//, ""))) continue;
      object.modifiedMs -= AGE_MS;
      left.push(key);
    }
    if (left.length === 0) return;
    expect(Date.now() < deadline, `objects that nothing names: ${left.join(" ")}`);
    await sleep(200);
  }
}
