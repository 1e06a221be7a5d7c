import { setTimeout as sleep } from "node:timers/promises";
import { CLUSTER_MODEL, type Cluster } from "../support/cluster/cluster.ts";
import { Customer, type CustomerAnswer, expect, Gone, sha256 } from "./customer.ts";
import type { Random } from "./random.ts";
import { untilGone } from "./stories.ts";

/** A process that stands still answers nobody. */
const TIMEOUT_MS = 8000;
const PAUSE_MS = 40;
/** No fault keeps a customer from an answer for longer. */
const PATIENCE_MS = 60_000;
/** Older than any object that may belong to a request under way. */
const AGE_MS = 2 * 3_600_000;
const SWEEP_PATIENCE_MS = 30_000;

/** A customer of all APIs of a cluster, in turns, that repeats each request until it is answered. */
export class ClusterCustomer extends Customer {
  /** Ends the stories. */
  isOver = false;
  /** The number of requests without an answer, or with one that says "later", by reason. */
  readonly repeats: Record<string, number> = {};
  /** The hash of each image that a request with an idempotency key got, by prompt. */
  readonly keyed = new Map<string, string>();
  /** The prompts whose request was killed while it may be paid: the service sends no further one under the same key. */
  readonly givenUp = new Set<string>();
  readonly #tried = new Set<string>();
  readonly #cluster: Cluster;

  constructor(cluster: Cluster) {
    super();
    this.#cluster = cluster;
  }

  /** Nothing that happens to a database, a bucket or another process is an internal error. */
  override mayAnswer(status: number): boolean {
    return status !== 500;
  }

  override async ask(key: string, path: string, init: RequestInit = {}): Promise<CustomerAnswer> {
    for (const deadline = Date.now() + PATIENCE_MS; ; ) {
      if (this.isOver) throw new Gone("the story is over");
      const reason = await this.#try(key, path, init);
      if (typeof reason !== "string") return reason;
      this.repeats[reason] = (this.repeats[reason] ?? 0) + 1;
      expect(Date.now() < deadline, `${path} had no answer for ${PATIENCE_MS} ms: ${reason}`);
      await sleep(PAUSE_MS);
    }
  }

  /** The answer, or why there is none yet. */
  async #try(key: string, path: string, init: RequestInit): Promise<CustomerAnswer | string> {
    this.url = this.#cluster.nextUrl();
    try {
      const answer = await super.ask(key, path, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) });
      const isLater = answer.status > 500 || answer.status === 429;
      return isLater ? `${answer.status} ${answer.code}` : answer;
    } catch (error) {
      if (error instanceof Gone) return "no answer";
      throw error;
    }
  }

  /** Asks for one image in real time, under a key. If the key was used before, the image must be the same. */
  async askKeyed(prompt: string): Promise<void> {
    this.#tried.add(prompt);
    const body = JSON.stringify({
      contents: [{ role: "user", parts: [{ text: prompt }] }],
      generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
    });
    const headers = { "content-type": "application/json", "idempotency-key": `key of ${prompt}` };
    const path = `/v1beta/models/${CLUSTER_MODEL}:generateContent`;
    const answer = await this.ask(this.#cluster.key, path, { method: "POST", headers, body });
    const reason = answer.json?.error?.details?.[0]?.reason;
    if (answer.status === 409 && reason === "REALTIME_OUTCOME_UNKNOWN") {
      expect(!this.keyed.has(prompt), `${prompt}: was answered, and is given up`);
      this.givenUp.add(prompt);
      return;
    }
    expect(answer.status === 200 && !this.givenUp.has(prompt), answer.what);
    const hash = sha256(answer.bytes);
    const before = this.keyed.get(prompt) ?? hash;
    expect(before === hash, `${prompt}: a repeat has another answer`);
    this.keyed.set(prompt, hash);
  }

  /** Sends everything once more, waits until everything has ended, and checks every batch and image. */
  override async drain(): Promise<void> {
    this.isOver = false;
    for (const prompt of this.#tried) await this.askKeyed(prompt);
    await super.drain();
  }
}

/** A customer that asks in real time until the story is over, now and then twice, with a pause after each time. */
export async function keyedStory(
  customer: ClusterCustomer,
  { random, prefix, pauseMs }: { random: Random; prefix: string; pauseMs: number },
): Promise<void> {
  const live = async () => {
    for (let number = 1; ; number++) {
      const prompt = `${prefix} keyed ${number}`;
      await Promise.all(Array.from({ length: random.whole(1, 2) }, () => customer.askKeyed(prompt)));
      await sleep(random.whole(20, 300) + pauseMs);
    }
  };
  await untilGone(live());
}

/** Checks what must be true of a cluster whose work has all ended, beside what its customers saw. */
export async function judge(cluster: Cluster, customer: ClusterCustomer): Promise<void> {
  const crashed = cluster.members.filter(({ crashes }) => crashes > 0).map(({ name }) => name);
  expect(crashed.length === 0, `ended by themselves: ${crashed.join(" ")}`);
  const { ok, problems } = await cluster.admin("check");
  expect(ok, `admin check: ${JSON.stringify(problems)}`);
  await nothingIsMadeTwice(cluster, customer);
  await moneyAddsUp(cluster, customer);
  await noObjectIsLeft(cluster);
}

/** For each item and request the upstream has made one image, and one more at most where the mark says so. */
async function nothingIsMadeTwice(cluster: Cluster, customer: ClusterCustomer): Promise<void> {
  const items = await cluster.rows(
    `select prompt, count(*), count(*) filter (where status = 'success'), count(*) filter (where maybe_paid = 'twice')
     from items group by prompt`,
  );
  const keyed = await cluster.rows(
    `select substr(key, 8), 1, count(case when answer like '{"sha256%' then 1 end), case when paid_runs > 1 then 1 else 0 end
     from keyed_requests group by 1, 4`,
  );
  const answered = customer.keyed.size + customer.givenUp.size;
  expect(keyed.length === answered, `${answered} keys were answered, ${keyed.length} kept`);
  for (const [prompt = "", ...counts] of [...items, ...keyed]) {
    const [asked = 0, successes = 0, marked = 0] = counts.map(Number);
    const made = cluster.upstream.bill.get(prompt)?.length ?? 0;
    const what = `"${prompt}": ${asked} asked for, ${made} made, ${successes} kept, ${marked} marked`;
    expect(made <= asked + marked && made >= successes, what);
  }
}

/** The images have cost as much as is missing from the balance. */
async function moneyAddsUp(cluster: Cluster, customer: ClusterCustomer): Promise<void> {
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
  expect(used === customer.keyed.size, `${customer.keyed.size} images in real time, ${used} charges`);
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
