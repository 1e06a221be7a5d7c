import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster, Member } from "../support/cluster/cluster.ts";
import type { S3Fault } from "../support/fake-s3.ts";
import { expect } from "./customer.ts";
import type { Random } from "./random.ts";

/** Longer than a lease lasts without a beat. */
const STANDSTILL_MS = 9000;
const STOP_MS = 15_000;
/** S3 refuses requests whose clock is further off than 15 minutes. */
const MOST_STEP_MS = 5 * 60_000;

const S3_FAULTS: readonly S3Fault[] = [
  { refuse: { status: 503, code: "SlowDown" } },
  { refuse: { status: 500, code: "InternalError" } },
  { reset: "before" },
  { reset: "after" },
  { cutAt: 40 },
  { slowMs: 20 },
  { wrongBytes: true },
];

/** Resolves when everything that it has ended runs again. */
type Fault = (run: FaultRun) => Promise<void>;

interface FaultRun {
  cluster: Cluster;
  random: Random;
  /** A process that no other fault has hit. It is given back with `free`. */
  take(): Member | null;
  free(member: Member): void;
  isDatabaseDown: boolean;
  /** When the database last came back. */
  troubledMs: number;
  /** Measures how long the work of a process that has just gone lies idle. */
  watch(): Promise<void>;
}

const kill: Fault = async ({ random, take, free, watch }) => {
  const member = take();
  if (member === null) return;
  await member.end("SIGKILL");
  const isTaken = watch();
  await sleep(random.whole(0, 3000));
  await member.start();
  free(member);
  await isTaken;
};

const standStill: Fault = async ({ take, free, watch }) => {
  const member = take();
  if (member === null) return;
  member.pause();
  const isTaken = watch();
  await sleep(STANDSTILL_MS);
  member.resume();
  free(member);
  await isTaken;
};

const drain: Fault = async ({ take, free, watch }) => {
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

const crashDatabase: Fault = async (run) => {
  if (run.isDatabaseDown) return;
  run.isDatabaseDown = true;
  await run.cluster.postgres.restart("immediate");
  run.isDatabaseDown = false;
  run.troubledMs = Date.now();
};

const cutCommits: Fault = async ({ cluster, random }) => {
  cluster.proxy.cut(random.pick(["before", "answer", "late"] as const), { times: random.whole(1, 6) });
};

const losePaths: Fault = async (run) => {
  const { cluster, random } = run;
  cluster.proxy.isRefusing = true;
  cluster.proxy.cutAll();
  await sleep(random.whole(50, 1500));
  cluster.proxy.isRefusing = false;
  run.troubledMs = Date.now();
};

const failObjects: Fault = async ({ cluster, random }) => {
  const fault = random.pick(S3_FAULTS);
  cluster.s3.fail(fault, { times: random.whole(1, 20), when: () => random.chance(0.5) });
  await sleep(random.whole(200, 1500));
  cluster.s3.heal();
};

/** The clocks of all processes step, as after a wrong time server. */
const stepClock: Fault = async ({ cluster, random }) => {
  await cluster.setClock(random.whole(-MOST_STEP_MS, MOST_STEP_MS));
};

const FAULTS = { stepClock, kill, standStill, drain, crashDatabase, cutCommits, losePaths, failObjects };
type FaultName = keyof typeof FAULTS;

/** How often each comes in a round. */
const ROUND: readonly FaultName[] = [
  ...(["kill", "kill", "kill", "kill", "standStill", "drain"] as const),
  ...(["crashDatabase", "cutCommits", "cutCommits", "losePaths", "failObjects", "failObjects"] as const),
];

interface FaultReport {
  /** How many there were of each. */
  done: Partial<Record<FaultName, number>>;
  /** The longest time in milliseconds that work of a process that had gone lay idle. */
  longestIdleMs: number;
}

/**
 * Injects faults one after the other, and several at a time; resolves when all are over. Others must take up within
 * `takenUpMs` the work of a process that is gone.
 */
export async function injectFaults(
  cluster: Cluster,
  plan: {
    random: Random;
    /** Whether there were enough. */
    isOver: (count: number) => boolean;
    everyMs: number;
    takenUpMs: number;
    /** Processes that no fault ends: what grows in them is a leak. Default: none. */
    steady?: readonly Member[];
    /** Whether clocks step, too. Default: false. */
    stepsClocks?: boolean;
  },
): Promise<FaultReport> {
  const { random, isOver, everyMs, takenUpMs, steady = [], stepsClocks = false } = plan;
  const hit = new Set<Member>(steady);
  const report: FaultReport = { done: {}, longestIdleMs: 0 };
  const run: FaultRun = {
    cluster,
    random,
    isDatabaseDown: false,
    troubledMs: 0,
    take: () => {
      const apis = cluster.apis.filter((api) => !hit.has(api) || steady.includes(api));
      const free = cluster.members.filter((member) => !hit.has(member));
      // One of the APIs is always there, as behind a balancer.
      const mayGo = free.filter(({ role }) => role === "worker" || apis.length > 1);
      const member = mayGo.length === 0 ? null : random.pick(mayGo);
      if (member !== null) hit.add(member);
      return member;
    },
    free: (member) => hit.delete(member),
    watch: () => {
      const measured = idleMs(run, takenUpMs).then((ms) => {
        report.longestIdleMs = Math.max(report.longestIdleMs, ms);
      });
      // The caller waits for it later, and gets its error then.
      measured.catch(() => {});
      return measured;
    },
  };
  const underWay = new Set<Promise<void>>();
  let broken: { error: unknown } | null = null;
  let names: FaultName[] = [];
  for (let i = 0; broken === null && !isOver(i); i++) {
    if (names.length === 0) names = [...ROUND, ...(stepsClocks ? (["stepClock"] as const) : [])];
    const [name = "kill"] = names.splice(random.whole(0, names.length - 1), 1);
    report.done[name] = (report.done[name] ?? 0) + 1;
    const work = FAULTS[name](run)
      .catch((error) => {
        broken ??= { error };
      })
      .finally(() => underWay.delete(work));
    underWay.add(work);
    await sleep(random.whole(0, everyMs * 2));
  }
  await Promise.all(underWay);
  if (broken !== null) throw (broken as { error: unknown }).error;
  return report;
}

/**
 * How long until nobody holds any more what is leased now. The time counts while the database is there, and a worker that
 * may take over. Throws when it takes longer than `mostMs`.
 */
async function idleMs(run: FaultRun, mostMs: number): Promise<number> {
  const { cluster } = run;
  let fromMs = Date.now();
  const leases = "select id, lease_token from items where status = 'pending' and lease_token is not null";
  const then = (await cluster.rows(leases)).map((row) => row.join());
  for (;;) {
    const now = new Set((await cluster.rows(leases)).map((row) => row.join()));
    const left = then.filter((lease) => now.has(lease));
    const mayGoOn = !run.isDatabaseDown && cluster.workers.some(({ isUp }) => isUp);
    fromMs = Math.max(mayGoOn ? fromMs : Date.now(), run.troubledMs);
    const passedMs = Date.now() - fromMs;
    if (left.length === 0) return passedMs;
    expect(passedMs < mostMs, `items ${left.join(" ")} lay idle for ${passedMs} ms`);
    await sleep(250);
  }
}
