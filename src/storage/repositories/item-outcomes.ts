import { sql } from "kysely";
import type { FinishedItem } from "../../domain/ports/batches.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { UpstreamTask } from "../../domain/records.ts";
import { arrayOf } from "../dialects/postgres-session.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";

export const NO_LEASE = { leaseToken: null, leaseWorker: null };

interface Lease {
  id: number;
  leaseToken: string;
}

/** Only who holds the lease may change a pending item. */
const held = (build: SqlSession["build"], { id, leaseToken }: Values<Lease>) =>
  build
    .updateTable("items")
    .where("id", "=", id)
    .where("status", "=", "pending")
    .where("leaseToken", "=", leaseToken);

type Returned = Required<Parameters<Repositories["items"]["giveBack"]>[2]>;

/** See `Repositories.items.giveBack`. */
export const GIVE_BACK = prepared((build, item: Values<Lease & Returned>) =>
  held(build, item).set({
    notBeforeMs: item.notBeforeMs,
    delayedAtMs: item.delayedAtMs,
    attempts: item.attempts,
    failedAt: item.failedAt,
    maybePaid: item.maybePaid,
    ...NO_LEASE,
  }),
);

/** See `Repositories.items.keepTask`. */
export const KEEP_TASK = prepared((build, item: Values<Lease & UpstreamTask>) =>
  // An earlier failure must not keep its upstream from getting it.
  held(build, item).set({ task: item.task, taskUpstream: item.upstream, failedAt: null }),
);

/** The types of the columns that an outcome fills. */
const TYPES = {
  id: "bigint",
  leaseToken: "text",
  status: "text",
  mimeType: "text",
  imageCount: "bigint",
  modelVersion: "text",
  seed: "bigint",
  notes: "text",
  usage: "text",
  answer: "text",
  error: "text",
  maybePaid: "text",
  finishedAtMs: "bigint",
} as const;
type Name = keyof typeof TYPES;
const NAMES = Object.keys(TYPES) as Name[];

/** See `Repositories.items.finish`. */
export async function finishItems<T extends FinishedItem>(
  { build, dialect, all, changes }: SqlSession,
  items: readonly T[],
): Promise<T[]> {
  if (dialect === "sqlite") {
    const isOurs: boolean[] = [];
    for (const item of items) isOurs.push((await changes(FINISH(build, item))) === 1);
    return items.filter((_, at) => isOurs[at]);
  }
  const lists = Object.fromEntries(NAMES.map((name) => [name, arrayOf(items.map((item) => item[name]))]));
  const ours = new Set((await all(FINISH_ALL(build, lists as Lists))).map(({ at }) => at));
  return items.filter((_, at) => ours.has(at + 1));
}

const FINISH = prepared((build, item: Values<FinishedItem>) =>
  held(build, item).set({
    status: item.status,
    mimeType: item.mimeType,
    imageCount: item.imageCount,
    modelVersion: item.modelVersion,
    seed: item.seed,
    notes: item.notes,
    usage: item.usage,
    answer: item.answer,
    error: item.error,
    maybePaid: item.maybePaid,
    finishedAtMs: item.finishedAtMs,
    ...NO_LEASE,
  }),
);

type Lists = Record<Name, unknown[]>;

/** The same for any number of items. Returns the numbers of those that were still held, from 1. */
const FINISH_ALL = prepared((build, lists: Values<Lists>) => {
  const columns = NAMES.map((name) => sql`${lists[name]}::${sql.raw(TYPES[name])}[]`);
  const names = sql.join([...NAMES, "at"].map((name) => sql.ref(name)));
  const finished = sql<
    FinishedItem & { at: number }
  >`unnest(${sql.join(columns)}) with ordinality`.as<"finished">(sql`finished(${names})`);
  return build
    .updateTable("items")
    .from(finished)
    .set((eb) => ({
      status: eb.ref("finished.status"),
      mimeType: eb.ref("finished.mimeType"),
      imageCount: eb.ref("finished.imageCount"),
      modelVersion: eb.ref("finished.modelVersion"),
      seed: eb.ref("finished.seed"),
      notes: eb.ref("finished.notes"),
      usage: eb.ref("finished.usage"),
      answer: eb.ref("finished.answer"),
      error: eb.ref("finished.error"),
      maybePaid: eb.ref("finished.maybePaid"),
      finishedAtMs: eb.ref("finished.finishedAtMs"),
      ...NO_LEASE,
    }))
    .whereRef("items.id", "=", "finished.id")
    .where("items.status", "=", "pending")
    .whereRef("items.leaseToken", "=", "finished.leaseToken")
    .returning("finished.at");
});
