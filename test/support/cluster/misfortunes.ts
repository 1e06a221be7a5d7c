import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "../../soak/memory.mjs";
import type { Random } from "../../soak/random.mjs";
import type { S3Fault } from "../fake-s3.ts";
import type { Cluster } from "./cluster.ts";
import type { Member } from "./member.ts";

/** Longer than a lease lasts without a beat. */
const STANDSTILL_MS = 9000;
const STOP_MS = 15_000;

const S3_FAULTS: readonly S3Fault[] = [
  { refuse: { status: 503, code: "SlowDown" } },
  { refuse: { status: 500, code: "InternalError" } },
  { reset: "before" },
  { reset: "after" },
  { cutAt: 40 },
  { slowMs: 20 },
  { wrongBytes: true },
];

/** Does harm, and resolves when everything that it has ended runs again. */
type Misfortune = (story: Story) => Promise<void>;

interface Story {
  cluster: Cluster;
  random: Random;
  /** A process that no other misfortune has in its hands. It is given back with `free`. */
  take(): Member | null;
  free(member: Member): void;
  isDatabaseDown: boolean;
  /** When the database last came back. */
  troubledMs: number;
  /** Measures how long the work of a process that has just gone lies idle. */
  watch(): Promise<void>;
}

const kill: Misfortune = async ({ random, take, free, watch }) => {
  const member = take();
  if (member === null) return;
  await member.end("SIGKILL");
  const isTaken = watch();
  await sleep(random.whole(0, 3000));
  await member.start();
  free(member);
  await isTaken;
};

const standStill: Misfortune = async ({ take, free, watch }) => {
  const member = take();
  if (member === null) return;
  member.pause();
  const isTaken = watch();
  await sleep(STANDSTILL_MS);
  member.resume();
  free(member);
  await isTaken;
};

const drain: Misfortune = async ({ take, free, watch }) => {
  const member = take();
  if (member === null) return;
  const startedMs = Date.now();
  const end = await member.end("SIGTERM");
  expect(end === 0, `${member.name} ended with ${end} after SIGTERM`);
  expect(Date.now() - startedMs < STOP_MS, `${member.name} took ${Date.now() - startedMs} ms to stop`);
  const isTaken = watch();
  await member.start();
  free(member);
  await isTaken;
};

const crashDatabase: Misfortune = async (story) => {
  if (story.isDatabaseDown) return;
  story.isDatabaseDown = true;
  await story.cluster.postgres.restart("immediate");
  story.isDatabaseDown = false;
  story.troubledMs = Date.now();
};

const cutCommits: Misfortune = async ({ cluster, random }) => {
  cluster.proxy.cut(random.pick(["before", "answer", "late"] as const), { times: random.whole(1, 6) });
};

const losePaths: Misfortune = async (story) => {
  const { cluster, random } = story;
  cluster.proxy.isRefusing = true;
  cluster.proxy.cutAll();
  await sleep(random.whole(50, 1500));
  cluster.proxy.isRefusing = false;
  story.troubledMs = Date.now();
};

const failObjects: Misfortune = async ({ cluster, random }) => {
  const fault = random.pick(S3_FAULTS);
  cluster.s3.fail(fault, { times: random.whole(1, 20), when: () => random.chance(0.5) });
  await sleep(random.whole(200, 1500));
  cluster.s3.heal();
};

const MISFORTUNES = { kill, standStill, drain, crashDatabase, cutCommits, losePaths, failObjects };
export type MisfortuneName = keyof typeof MISFORTUNES;

/** How often each comes in a round. */
const ROUND: readonly MisfortuneName[] = [
  ...(["kill", "kill", "kill", "kill", "standStill", "drain"] as const),
  ...(["crashDatabase", "cutCommits", "cutCommits", "losePaths", "failObjects", "failObjects"] as const),
];

export interface Harm {
  /** How many there were of each. */
  done: Partial<Record<MisfortuneName, number>>;
  /** The longest time in milliseconds that work of a process that had gone lay idle. */
  longestIdleMs: number;
}

/**
 * Lets misfortunes come one after the other, and several at a time; resolves when all are over. Others must take up within
 * `takenUpMs` the work of a process that is gone.
 */
export async function harm(
  cluster: Cluster,
  {
    random,
    count,
    everyMs,
    takenUpMs,
  }: { random: Random; count: number; everyMs: number; takenUpMs: number },
): Promise<Harm> {
  const harmed = new Set<Member>();
  const report: Harm = { done: {}, longestIdleMs: 0 };
  const story: Story = {
    cluster,
    random,
    isDatabaseDown: false,
    troubledMs: 0,
    take: () => {
      const apis = cluster.apis.filter((api) => !harmed.has(api));
      const free = cluster.members.filter((member) => !harmed.has(member));
      // One of the APIs is always there, as behind a balancer.
      const mayGo = free.filter(({ role }) => role === "worker" || apis.length > 1);
      const member = mayGo.length === 0 ? null : random.pick(mayGo);
      if (member !== null) harmed.add(member);
      return member;
    },
    free: (member) => harmed.delete(member),
    watch: () => {
      const measured = idleMs(story, takenUpMs).then((ms) => {
        report.longestIdleMs = Math.max(report.longestIdleMs, ms);
      });
      // The caller waits for it later, and gets its error then.
      measured.catch(() => {});
      return measured;
    },
  };
  const underWay: Promise<void>[] = [];
  let names: MisfortuneName[] = [];
  for (let i = 0; i < count; i++) {
    if (names.length === 0) names = [...ROUND];
    const [name = "kill"] = names.splice(random.whole(0, names.length - 1), 1);
    report.done[name] = (report.done[name] ?? 0) + 1;
    const work = MISFORTUNES[name](story);
    work.catch(() => {});
    underWay.push(work);
    await sleep(random.whole(0, everyMs * 2));
  }
  await Promise.all(underWay);
  return report;
}

/**
 * How long until nobody holds any more what is leased now. The time counts while the database is there, and a worker that
 * may take over. Throws when it takes longer than `mostMs`.
 */
async function idleMs(story: Story, mostMs: number): Promise<number> {
  const { cluster } = story;
  let fromMs = Date.now();
  const leases = "select id, lease_token from items where status = 'pending' and lease_token is not null";
  const then = (await cluster.rows(leases)).map((row) => row.join());
  for (;;) {
    const now = new Set((await cluster.rows(leases)).map((row) => row.join()));
    const left = then.filter((lease) => now.has(lease));
    const mayGoOn = !story.isDatabaseDown && cluster.workers.some(({ isUp }) => isUp);
    fromMs = Math.max(mayGoOn ? fromMs : Date.now(), story.troubledMs);
    const passedMs = Date.now() - fromMs;
    if (left.length === 0) return passedMs;
    expect(passedMs < mostMs, `items ${left.join(" ")} lay idle for ${passedMs} ms`);
    await sleep(250);
  }
}
