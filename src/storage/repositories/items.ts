import { type ExpressionBuilder, type Insertable, type Kysely, sql } from "kysely";
import type { ItemStatus } from "../../contract/statuses.ts";
import type { ListedItem, NewItem, Repositories } from "../../domain/ports/stores.ts";
import type { ItemRecord, LeasedItem, MaybePaid, UpstreamTask } from "../../domain/records.ts";
import { arrayOf } from "../dialects/postgres-session.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import type { Database } from "../tables.ts";
import { columnNames, insertRows } from "./rows.ts";
import { liveWorkers } from "./workers.ts";

const NO_LEASE = { leaseToken: null, leaseWorker: null };

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
const GIVE_BACK = prepared((build, item: Values<Lease & Returned>) =>
  held(build, item).set({
    notBeforeMs: item.notBeforeMs,
    delayedAtMs: item.delayedAtMs,
    attempts: item.attempts,
    failedAt: item.failedAt,
    maybePaid: item.maybePaid,
    usage: item.usage,
    ...NO_LEASE,
  }),
);

/** See `Repositories.items.keepTask`. */
const KEEP_TASK = prepared((build, item: Values<Lease & UpstreamTask>) =>
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
/** What an outcome changes of a leased item, and what it is found by. */
type Outcome = Pick<LeasedItem, Name>;
const NAMES = Object.keys(TYPES) as Name[];

/** See `Repositories.items.finish`. */
async function finishItems(
  { build, dialect, all, changes }: SqlSession,
  items: readonly LeasedItem[],
): Promise<LeasedItem[]> {
  if (dialect === "sqlite") {
    const isOurs: boolean[] = [];
    for (const item of items) isOurs.push((await changes(FINISH(build, item))) === 1);
    return items.filter((_, at) => isOurs[at]);
  }
  const lists = Object.fromEntries(NAMES.map((name) => [name, arrayOf(items.map((item) => item[name]))]));
  const ours = new Set((await all(FINISH_ALL(build, lists as Lists))).map(({ at }) => at));
  return items.filter((_, at) => ours.has(at + 1));
}

const FINISH = prepared((build, item: Values<Outcome>) =>
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
  const finished = sql<Outcome & { at: number }>`unnest(${sql.join(columns)}) with ordinality`.as<"finished">(
    sql`finished(${names})`,
  );
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

/** The columns of an `ItemRecord`. */
const ITEM: readonly (keyof ItemRecord)[] = [
  "id",
  ...columnNames<keyof ItemRecord>("items", ["notBeforeMs", "delayedAtMs", "leaseWorker"]),
];

type ItemFilter = ExpressionBuilder<Database, "items">;
type Group = (eb: ItemFilter) => ReturnType<ItemFilter["and"]>;

/**
 * The order of claims. Items that were never tried show whether the upstream is well, and lose nothing when it is not.
 * Each is a search of its own, which ends at its first finds.
 */
const ORDER: readonly Group[] = [
  (eb) => eb.and([eb("failedAt", "is", null), eb("maybePaid", "=", "no")]),
  (eb) => eb.and([eb("maybePaid", "=", "no")]),
  (eb) => eb.and([]),
];

type ItemClaim = Parameters<Repositories["items"]["claim"]>[1];

/** See `Repositories.items.claim`. */
async function claimItems(session: SqlSession, batchId: string, claim: ItemClaim): Promise<ItemRecord[]> {
  const claimed: ItemRecord[] = [];
  for (const group of ORDER) {
    const limit = claim.limit - claimed.length;
    if (limit === 0) break;
    claimed.push(...(await claimOf(session, group, { ...claim, batchId, limit })));
  }
  return claimed;
}

/**
 * SQLite makes a temporary table for each list in a statement, which takes ten times as long as a statement for each item.
 * No other transaction is at work there.
 */
async function claimOf(
  { build, dialect, all }: SqlSession,
  group: Group,
  claim: ClaimFacts,
): Promise<ItemRecord[]> {
  const { findFree, lease, leaseFree } = queriesFor(group, claim);
  if (dialect === "postgres") {
    const some = await all(leaseFree(build, claim));
    return some.sort((a, b) => a.position - b.position);
  }
  const some: ItemRecord[] = [];
  for (const { id } of await all(findFree(build, claim)))
    some.push(...(await all(lease(build, { ...claim, itemId: id }))));
  return some;
}

type ClaimFacts = ItemClaim & { batchId: string };
type ClaimValues = Omit<ClaimFacts, "which" | "isPaid">;

const QUERIES = new Map<string, ReturnType<typeof makeQueries>>();

function queriesFor(group: Group, { which, isPaid }: ItemClaim): ReturnType<typeof makeQueries> {
  const name = `${ORDER.indexOf(group)} ${which} ${isPaid}`;
  const queries = QUERIES.get(name) ?? makeQueries(group, which, isPaid);
  QUERIES.set(name, queries);
  return queries;
}

function makeQueries(group: Group, which: ItemClaim["which"], isPaid: boolean) {
  return {
    /** Finds items that may be claimed. */
    findFree: prepared((build, claim: Values<ClaimValues>) => freeItems(build, group, which, claim)),
    /** Claims one of them. */
    lease: prepared((build, claim: Values<ClaimValues & { itemId: number }>) => {
      const update = build.updateTable("items").set(leaseOf(isPaid, claim));
      return update.where("id", "=", claim.itemId).returning(ITEM);
    }),
    /** Finds and claims, and passes over items that another process is claiming. */
    leaseFree: prepared((build, claim: Values<ClaimValues>) => {
      const free = freeItems(build, group, which, claim).forUpdate().skipLocked();
      const update = build.with("free", () => free).updateTable("items");
      const leased = update.set(leaseOf(isPaid, claim));
      return leased.where("id", "in", (eb) => eb.selectFrom("free").select("free.id")).returning(ITEM);
    }),
  };
}

function freeItems(
  build: Kysely<Database>,
  group: Group,
  which: ItemClaim["which"],
  claim: Values<ClaimValues>,
) {
  const { provider, upstream, mostSwitches } = claim;
  // A batch that was just cancelled starts no item.
  const open = build
    .selectFrom("batches")
    .select("batches.id")
    .where("batches.id", "=", claim.batchId)
    .where("batches.status", "in", ["queued", "running"]);
  const due = build
    .selectFrom("items")
    .select("id")
    .where("batchId", "=", open)
    .where("status", "=", "pending")
    .where((eb) => eb.or([eb("notBeforeMs", "<=", claim.nowMs), eb("delayedAtMs", ">", claim.nowMs)]))
    .where("leaseToken", "is", null)
    .where((eb) =>
      eb.or([eb("provider", "is", null), eb("provider", "=", provider), eb("switches", "<", mostSwitches)]),
    )
    .where((eb) => eb.or([eb("taskUpstream", "is", null), eb("taskUpstream", "=", upstream)]))
    .where(group)
    .orderBy("position")
    .limit(claim.limit);
  return {
    any: due,
    "not-failed-here": due.where((eb) =>
      eb.or([
        eb("failedAt", "is", null),
        eb("failedAt", "!=", provider),
        // It may not change the provider any more.
        eb("switches", ">=", mostSwitches),
      ]),
    ),
    "failed-elsewhere": due.where("failedAt", "is not", null).where("failedAt", "!=", provider),
  }[which];
}

/** The values of an item that is claimed. */
function leaseOf(isPaid: boolean, { provider, token, worker }: Values<ClaimValues>) {
  const isSwitch = sql<number>`case when provider is not null and provider != ${provider} then 1 else 0 end`;
  const paidAgain = sql<MaybePaid>`case when maybe_paid = 'once' then 'twice' else maybe_paid end`;
  return {
    leaseToken: token,
    leaseWorker: worker,
    switches: sql<number>`switches + ${isSwitch}`,
    provider,
    ...(isPaid ? { maybePaid: paidAgain } : {}),
  };
}

/** The columns of a `ListedItem`. */
const LISTED_ITEM = [
  ...(["id", "position", "sourceIndex", "customId", "prompt", "status", "mimeType", "imageCount"] as const),
  ...(["error", "modelVersion", "provider", "maybePaid", "seed", "notes", "usage", "priceMicroUsd"] as const),
  ...(["finishedAtMs", "options"] as const),
] as const satisfies readonly (keyof ListedItem)[];

type Page = { batchId: string; after: number; limit: number; offset: number };
type PageFilter = Parameters<Repositories["items"]["page"]>[1];

/** Makes the query for a page of the items of a batch, with these columns. */
function pageOf<Name extends keyof ItemRecord>(columns: readonly Name[]) {
  const rows = (build: SqlSession["build"], page: Values<Page>) =>
    build
      .selectFrom("items")
      .select(columns as readonly (keyof ItemRecord)[])
      .where("batchId", "=", page.batchId)
      .where("position", ">", page.after)
      .orderBy("position")
      .limit(page.limit)
      .offset(page.offset)
      .$castTo<Pick<ItemRecord, Name>>();
  const any = prepared(rows);
  const ofStatus = prepared((build, page: Values<Page & { status: ItemStatus }>) =>
    rows(build, page).where("status", "=", page.status),
  );
  return (
    build: SqlSession["build"],
    batchId: string,
    { status, afterPosition, offset = 0, limit }: PageFilter,
  ) => {
    const page = { batchId, after: afterPosition, offset, limit };
    return status === undefined ? any(build, page) : ofStatus(build, { ...page, status });
  };
}

const PAGE = pageOf(ITEM);
const LISTED_PAGE = pageOf(LISTED_ITEM);

const COUNTS = prepared((build, { batchId }: Values<{ batchId: string }>) =>
  build
    .selectFrom("items")
    .select(["status", (eb) => eb.fn.countAll<number>().as("count")])
    .where("batchId", "=", batchId)
    .groupBy("status"),
);

const NEXT_DUE = prepared((build, { afterMs }: Values<{ afterMs: number }>) =>
  build
    .selectFrom("items")
    .select("notBeforeMs")
    // As in the index.
    .where(sql<boolean>`not_before_ms > 0`)
    .where("notBeforeMs", ">", afterMs)
    .where("status", "=", "pending")
    .where("leaseToken", "is", null)
    .orderBy("notBeforeMs")
    .limit(1),
);

export function itemRepository(session: SqlSession): Repositories["items"] {
  const { build, first, all, run, changes } = session;
  const items = () => build.selectFrom("items").select(ITEM);
  const pendingOfJob = (jobId: string) =>
    items().where("jobId", "=", jobId).where("status", "=", "pending").orderBy("position");
  return {
    insertMany: async (batchId, newItems) => {
      const rows = newItems.map((item) => rowOf(batchId, item));
      await insertRows(session, "items", rows);
    },
    byCustomId: (batchId, customId) =>
      first(items().where("batchId", "=", batchId).where("customId", "=", customId)),
    page: (batchId, page) => all(PAGE(build, batchId, page)),
    listed: (batchId, page) => all(LISTED_PAGE(build, batchId, page)),
    retriesOf: async ({ id, apiKeyId, parentBatchId }, customIds) => {
      if (customIds.length === 0) return new Map();
      const seq = build.selectFrom("batches").select("seq").where("id", "=", id);
      const query = build
        .selectFrom("batches")
        .innerJoin("items", "items.batchId", "batches.id")
        .select(["items.customId", "batches.id"])
        .where("batches.apiKeyId", "=", apiKeyId)
        .where("batches.parentBatchId", "=", parentBatchId ?? id)
        .where("batches.seq", ">", seq)
        .where("batches.recordDeletedAtMs", "is", null)
        .where("items.customId", "in", [...customIds])
        .where("items.status", "!=", "failed")
        .orderBy("batches.seq");
      return new Map((await all(query)).map((row) => [row.customId, row.id]));
    },
    countLeased: async () => {
      const leased = build
        .selectFrom("items")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("leaseWorker", "in", liveWorkers(build))
        .where("status", "=", "pending");
      return (await first(leased))?.count ?? 0;
    },
    countByStatus: async (batchId) => {
      const counts = { pending: 0, success: 0, failed: 0 };
      for (const { status, count } of await all(COUNTS(build, { batchId }))) counts[status] = count;
      return counts;
    },
    sums: async (batchId) => {
      const query = build
        .selectFrom("items")
        .select([
          sql<number>`coalesce(sum(hold_micro_usd), 0)`.as("holdMicroUsd"),
          sql<number>`coalesce(sum(price_micro_usd), 0)`.as("priceMicroUsd"),
          sql<number>`coalesce(sum(case when status = 'success' then price_micro_usd else 0 end), 0)`.as(
            "earnedMicroUsd",
          ),
        ])
        .where("batchId", "=", batchId);
      return (await first(query)) ?? { holdMicroUsd: 0, priceMicroUsd: 0, earnedMicroUsd: 0 };
    },
    claim: (batchId, claim) => claimItems(session, batchId, claim),
    abandoned: async (batchId) => {
      const leased = items().where("leaseToken", "is not", null).where("jobId", "is", null);
      const dead = leased.where((eb) =>
        eb.or([eb("leaseWorker", "is", null), eb("leaseWorker", "not in", liveWorkers(build))]),
      );
      const some = batchId === undefined ? dead : dead.where("batchId", "=", batchId);
      return all(some.orderBy("id"));
    },
    leasesOf: async (workerId) => {
      const leased = build
        .selectFrom("items")
        .select(["id", "batchId", "leaseToken"])
        .where("leaseToken", "is not", null);
      const rows = await all(leased.where("leaseWorker", "=", workerId).orderBy("id"));
      return rows.map(({ id, batchId, leaseToken }) => ({
        batchId,
        itemId: id,
        leaseToken: leaseToken ?? "",
      }));
    },
    nextDueMs: async (afterMs) => (await first(NEXT_DUE(build, { afterMs })))?.notBeforeMs ?? null,
    finish: (finished) => finishItems(session, finished),
    giveBack: async (id, leaseToken, change) => ({
      isOurs:
        (await changes(
          GIVE_BACK(build, { ...change, delayedAtMs: change.delayedAtMs ?? 0, id, leaseToken }),
        )) === 1,
    }),
    keepTask: async (id, leaseToken, task) => ({
      isOurs: (await changes(KEEP_TASK(build, { ...task, id, leaseToken }))) === 1,
    }),
    assignToJob: async (batchId, { jobId, provider, limit }) => {
      const free = build
        .selectFrom("items")
        .select("id")
        .where("batchId", "=", batchId)
        .where("status", "=", "pending")
        .where("jobId", "is", null)
        .orderBy("position")
        .limit(limit);
      const ids = (await all(free)).map(({ id }) => id);
      if (ids.length === 0) return 0;
      return changes(build.updateTable("items").set({ jobId, provider }).where("id", "in", ids));
    },
    releaseFromJob: async (ids) => {
      if (ids.length === 0) return;
      const free = { jobId: null, ...NO_LEASE };
      const update = build
        .updateTable("items")
        .set(free)
        .where("id", "in", [...ids]);
      await run(update.where("status", "=", "pending"));
    },
    ofJob: (jobId) => all(pendingOfJob(jobId)),
    leaseJob: async (jobId, token) => {
      const lease = build.updateTable("items").set({ leaseToken: token }).where("jobId", "=", jobId);
      await run(lease.where("status", "=", "pending"));
      return all(pendingOfJob(jobId));
    },
    markJob: async (jobId, maybePaid, before) => {
      const mark = build.updateTable("items").set({ maybePaid }).where("jobId", "=", jobId);
      const pending = mark.where("status", "=", "pending");
      await run(before === undefined ? pending : pending.where("maybePaid", "=", before));
    },
    countWithoutJob: async (batchId) => {
      const query = build
        .selectFrom("items")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("batchId", "=", batchId)
        .where("status", "=", "pending")
        .where("jobId", "is", null);
      return (await first(query))?.count ?? 0;
    },
    resetSwitches: async (batchId) => {
      const update = build.updateTable("items").set({ switches: 0 }).where("batchId", "=", batchId);
      await run(update.where("status", "=", "pending").where("switches", ">", 0));
    },
    markDeleted: async (id, nowMs) => {
      await run(build.updateTable("items").set({ imagesDeletedAtMs: nowMs }).where("id", "=", id));
    },
    fail: async (id, error) => {
      const failed = { status: "failed", mimeType: null, imageCount: 0, error } as const;
      await run(build.updateTable("items").set(failed).where("id", "=", id));
    },
    failPending: async (batchId, error, nowMs, { besides: workerId, isMaybePaid } = {}) => {
      const update = build.updateTable("items").set({
        status: "failed",
        error,
        ...NO_LEASE,
        finishedAtMs: nowMs,
      });
      const every = update.where("batchId", "=", batchId).where("status", "=", "pending");
      const pending = isMaybePaid ? every.where("maybePaid", "!=", "no") : every;
      if (workerId === undefined) return changes(pending);
      const ours = pending.where((eb) =>
        eb.or([
          eb("leaseWorker", "is", null),
          eb("leaseWorker", "=", workerId),
          eb("leaseWorker", "not in", liveWorkers(build)),
        ]),
      );
      return changes(ours);
    },
    areLeasedBesides: async (batchId, workerId) => {
      const leased = build.selectFrom("items").select("id").where("batchId", "=", batchId);
      const others = leased
        .where("leaseToken", "is not", null)
        .where("leaseWorker", "!=", workerId)
        .where("leaseWorker", "in", liveWorkers(build));
      return (await first(others.limit(1))) !== null;
    },
    dropLeases: async (leases) => {
      let count = 0;
      for (const { itemId, leaseToken } of leases) {
        const own = build.updateTable("items").set(NO_LEASE).where("id", "=", itemId);
        count += await changes(own.where("leaseToken", "=", leaseToken));
      }
      return count;
    },
  };
}

function rowOf(batchId: string, item: NewItem): Insertable<Database["items"]> {
  const { failed } = item;
  return {
    batchId,
    position: item.position,
    sourceIndex: item.sourceIndex,
    outputIndex: item.outputIndex,
    customId: item.customId,
    prompt: item.prompt,
    options: item.options,
    earlier: item.earlier,
    verbatim: item.verbatim,
    priceMicroUsd: item.priceMicroUsd,
    holdMicroUsd: item.holdMicroUsd,
    clientKey: item.clientKey,
    status: failed ? "failed" : "pending",
    error: failed?.error ?? null,
    finishedAtMs: failed?.atMs ?? null,
    notBeforeMs: item.notBeforeMs ?? 0,
    delayedAtMs: item.delayedAtMs ?? 0,
  };
}
