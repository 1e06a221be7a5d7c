import { type Insertable, sql } from "kysely";
import type { ItemStatus } from "../../contract/statuses.ts";
import type { ListedItem, NewItem } from "../../domain/ports/batches.ts";
import { type Carried, DECISIVE_FIELDS } from "../../domain/ports/image-provider.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import { BATCH_TERMS, type ItemRecord } from "../../domain/records.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import type { Database } from "../tables.ts";
import { claimItems, ITEM } from "./item-claims.ts";
import { finishItems, GIVE_BACK, KEEP_TASK, NO_LEASE } from "./item-outcomes.ts";
import { insertRows } from "./rows.ts";
import { liveWorkers } from "./workers.ts";

/** The columns of a `ListedItem`. */
const LISTED_ITEM = [
  ...(["id", "position", "sourceIndex", "customId", "prompt", "status", "mimeType", "imageCount"] as const),
  ...(["error", "modelVersion", "provider", "maybePaid", "seed", "notes", "usage", "priceMicroUsd"] as const),
  ...(["finishedAtMs"] as const),
  ...(["tier", "ratio", "keepsRatio", "quality", "background", "askedSeed", "negativePrompt"] as const),
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

/** See `Repositories.items.totals`. */
async function totalsOf({ build, all }: SqlSession, batchIds: readonly string[]) {
  const query = build
    .selectFrom("items")
    .select((eb) => [
      "batchId",
      "status",
      eb.fn.countAll<number>().as("count"),
      sql<number>`coalesce(sum(price_micro_usd), 0)`.as("priceMicroUsd"),
      eb.fn.count<number>("priceMicroUsd").as("priced"),
      sql<number>`coalesce(sum(hold_micro_usd), 0)`.as("holdMicroUsd"),
      eb.fn.count<number>("holdMicroUsd").as("held"),
    ])
    .where("batchId", "in", [...batchIds])
    .groupBy(["batchId", "status"])
    .orderBy("batchId")
    .orderBy("status");
  return all(query);
}

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
    sums: async (batchId, { imageMicroUsd, holdMicroUsd }) => {
      const price = sql<number>`coalesce(price_micro_usd, ${imageMicroUsd})`;
      const hold = sql<number>`coalesce(hold_micro_usd, ${holdMicroUsd})`;
      const query = build
        .selectFrom("items")
        .select([
          sql<number>`coalesce(sum(${hold}), 0)`.as("holdMicroUsd"),
          sql<number>`coalesce(sum(${price}), 0)`.as("priceMicroUsd"),
          sql<number>`coalesce(sum(case when status = 'success' then ${price} else 0 end), 0)`.as(
            "earnedMicroUsd",
          ),
        ])
        .where("batchId", "=", batchId);
      return (await first(query)) ?? { holdMicroUsd: 0, priceMicroUsd: 0, earnedMicroUsd: 0 };
    },
    totals: (batchIds) => totalsOf(session, batchIds),
    shapes: async (batchId) => {
      // Only whether there is a seed or a negative prompt counts: of these there can be as many as items.
      const has = (column: string, name: string) =>
        sql`case when ${sql.ref(column)} is null then '' else ${sql.lit(`${name} `)} end`;
      // In JSON, only the name of a field has its quotes without a backslash.
      const says = (name: string) =>
        sql`case when ${sql.ref("verbatim")} like ${sql.lit(`%"${name}":%`)} then ${sql.lit(`${name} `)} else '' end`;
      const saysDecisive = sql.join(DECISIVE_FIELDS.map(says), sql` || `);
      const asked = sql<string>`${has("quality", "quality")} || ${has("background", "background")}
        || ${has("askedSeed", "seed")} || ${has("negativePrompt", "negativePrompt")} || ${saysDecisive}`;
      const query = build.selectFrom("items").where("batchId", "=", batchId).distinct();
      const rows = await all(query.select(["tier", "ratio", asked.as("asked")]).orderBy("asked"));
      return rows.map(({ asked: names, ...shape }) => ({
        ...shape,
        options: names.split(" ").slice(0, -1) as Carried[],
      }));
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
  const { failed, terms = BATCH_TERMS } = item;
  // The terms come last: V8 takes thirty times as long to add fields to an object that a spread began.
  return {
    batchId,
    position: item.position,
    sourceIndex: item.sourceIndex,
    outputIndex: item.outputIndex,
    customId: item.customId,
    prompt: item.prompt,
    status: failed ? "failed" : "pending",
    error: failed?.error ?? null,
    finishedAtMs: failed?.atMs ?? null,
    notBeforeMs: item.notBeforeMs ?? 0,
    delayedAtMs: item.delayedAtMs ?? 0,
    ...terms,
  };
}
