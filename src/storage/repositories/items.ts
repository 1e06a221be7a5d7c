import { type Insertable, type Selectable, sql } from "kysely";
import type { AspectRatio, ImageMimeType, SizeTier } from "../../contract/image-formats.ts";
import type { ItemStatus } from "../../contract/statuses.ts";
import type { ItemPage, ItemRepository, ListedItem, NewItem } from "../../domain/ports/item-repository.ts";
import { BATCH_TERMS } from "../../domain/ports/item-terms.ts";
import type { ItemRecord, MaybePaid } from "../../domain/records.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { ItemsTable } from "../schema.ts";
import { claimItems } from "./items/claim.ts";
import { finishItems } from "./items/finish.ts";
import {
  COUNTS,
  GIVE_BACK,
  type LISTED,
  LISTED_PAGE,
  LISTED_PAGE_OF_STATUS,
  NEXT_DUE,
  NO_LEASE,
  PAGE,
  PAGE_OF_STATUS,
  totalsOf,
} from "./items/queries.ts";
import { insertRows } from "./rows.ts";
import { liveWorkers } from "./workers.ts";

export function itemRepository(session: SqlSession): ItemRepository {
  const { build, first, all, run } = session;
  const items = () => build.selectFrom("items").selectAll();
  const pendingOfJob = (jobId: string) =>
    items().where("job_id", "=", jobId).where("status", "=", "pending").orderBy("position");
  return {
    insertMany: async (batchId, newItems) => {
      const rows = newItems.map((item) => toRow(batchId, item));
      await insertRows(session, "items", rows);
    },
    byCustomId: async (batchId, customId) =>
      toRecordOrNull(await first(items().where("batch_id", "=", batchId).where("custom_id", "=", customId))),
    page: async (batchId, { status, ...page }) => {
      const place = placeOf(batchId, page);
      const rows = status === undefined ? PAGE(build, place) : PAGE_OF_STATUS(build, { ...place, status });
      return (await all(rows)).map(toRecord);
    },
    listed: async (batchId, { status, ...page }) => {
      const place = placeOf(batchId, page);
      const rows =
        status === undefined ? LISTED_PAGE(build, place) : LISTED_PAGE_OF_STATUS(build, { ...place, status });
      return (await all(rows)).map(toListed);
    },
    retriesOf: async ({ id, apiKeyId, parentBatchId }, customIds) => {
      if (customIds.length === 0) return new Map();
      const seq = build.selectFrom("batches").select("seq").where("id", "=", id);
      const query = build
        .selectFrom("batches")
        .innerJoin("items", "items.batch_id", "batches.id")
        .select(["items.custom_id", "batches.id"])
        .where("batches.api_key_id", "=", apiKeyId)
        .where("batches.parent_batch_id", "=", parentBatchId ?? id)
        .where("batches.seq", ">", seq)
        .where("batches.record_deleted_at_ms", "is", null)
        .where("items.custom_id", "in", [...customIds])
        .where("items.status", "!=", "failed")
        .orderBy("batches.seq");
      return new Map((await all(query)).map((row) => [row.custom_id, row.id]));
    },
    countLeased: async () => {
      const leased = build
        .selectFrom("items")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("lease_worker", "in", liveWorkers(build))
        .where("status", "=", "pending");
      return (await first(leased))?.count ?? 0;
    },
    countByStatus: async (batchId) => {
      const counts = { pending: 0, success: 0, failed: 0 };
      for (const { status, count } of await all(COUNTS(build, { batchId })))
        counts[status as ItemStatus] = count;
      return counts;
    },
    sums: async (batchId, { imageMicroUsd, holdMicroUsd }) => {
      const price = sql<number>`coalesce(price_micro_usd, ${imageMicroUsd})`;
      const hold = sql<number>`coalesce(hold_micro_usd, ${holdMicroUsd})`;
      const query = build
        .selectFrom("items")
        .select([
          sql<number | null>`sum(${hold})`.as("hold"),
          sql<number | null>`sum(${price})`.as("price"),
          sql<number | null>`sum(case when status = 'success' then ${price} else 0 end)`.as("earned"),
        ])
        .where("batch_id", "=", batchId);
      const sums = await first(query);
      return {
        holdMicroUsd: sums?.hold ?? 0,
        priceMicroUsd: sums?.price ?? 0,
        earnedMicroUsd: sums?.earned ?? 0,
      };
    },
    totals: (batchIds) => totalsOf(session, batchIds),
    shapes: async (batchId) => {
      const query = build.selectFrom("items").select(["tier", "ratio"]).distinct();
      const own = query
        .where("batch_id", "=", batchId)
        .where((eb) => eb.or([eb("tier", "is not", null), eb("ratio", "is not", null)]));
      return (await all(own)).map(({ tier, ratio }) => ({
        tier: tier as SizeTier | null,
        ratio: ratio as AspectRatio | null,
      }));
    },
    claim: (batchId, claim) => claimItems(session, batchId, claim, toRecord),
    abandoned: async (batchId) => {
      const leased = items().where("lease_token", "is not", null).where("job_id", "is", null);
      const dead = leased.where((eb) =>
        eb.or([eb("lease_worker", "is", null), eb("lease_worker", "not in", liveWorkers(build))]),
      );
      const some = batchId === undefined ? dead : dead.where("batch_id", "=", batchId);
      return (await all(some.orderBy("id"))).map(toRecord);
    },
    leasesOf: async (workerId) => {
      const leased = build
        .selectFrom("items")
        .select(["id", "batch_id", "lease_token"])
        .where("lease_token", "is not", null);
      const rows = await all(leased.where("lease_worker", "=", workerId).orderBy("id"));
      return rows.map(({ id, batch_id, lease_token }) => {
        return { batchId: batch_id, itemId: id, leaseToken: lease_token ?? "" };
      });
    },
    nextDueMs: async (batchId) => (await first(NEXT_DUE(build, { batchId })))?.due ?? null,
    finish: (finished) => finishItems(session, finished),
    giveBack: async (id, leaseToken, change) => ({
      isOurs: (await run(GIVE_BACK(build, { ...change, id, leaseToken }))) === 1,
    }),
    assignToJob: async (batchId, { jobId, provider, limit }) => {
      const free = build
        .selectFrom("items")
        .select("id")
        .where("batch_id", "=", batchId)
        .where("status", "=", "pending")
        .where("job_id", "is", null)
        .orderBy("position")
        .limit(limit);
      const ids = (await all(free)).map(({ id }) => id);
      if (ids.length === 0) return 0;
      return run(build.updateTable("items").set({ job_id: jobId, provider }).where("id", "in", ids));
    },
    releaseFromJob: async (ids) => {
      if (ids.length === 0) return;
      const free = { job_id: null, ...NO_LEASE };
      const update = build
        .updateTable("items")
        .set(free)
        .where("id", "in", [...ids]);
      await run(update.where("status", "=", "pending"));
    },
    ofJob: async (jobId) => (await all(pendingOfJob(jobId))).map(toRecord),
    leaseJob: async (jobId, token) => {
      const lease = build.updateTable("items").set({ lease_token: token }).where("job_id", "=", jobId);
      await run(lease.where("status", "=", "pending"));
      return (await all(pendingOfJob(jobId))).map(toRecord);
    },
    markJob: async (jobId, maybePaid) => {
      const mark = build.updateTable("items").set({ maybe_paid: maybePaid }).where("job_id", "=", jobId);
      await run(mark.where("status", "=", "pending"));
    },
    countWithoutJob: async (batchId) => {
      const query = build
        .selectFrom("items")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("batch_id", "=", batchId)
        .where("status", "=", "pending")
        .where("job_id", "is", null);
      return (await first(query))?.count ?? 0;
    },
    resetSwitches: async (batchId) => {
      const update = build.updateTable("items").set({ switches: 0 }).where("batch_id", "=", batchId);
      await run(update.where("status", "=", "pending").where("switches", ">", 0));
    },
    fail: async (id, error) => {
      const failed = { status: "failed", mime_type: null, image_count: 0, error: JSON.stringify(error) };
      await run(build.updateTable("items").set(failed).where("id", "=", id));
    },
    failPending: async (batchId, error, nowMs, workerId) => {
      const update = build.updateTable("items").set({
        status: "failed",
        error: JSON.stringify(error),
        ...NO_LEASE,
        finished_at_ms: nowMs,
      });
      const pending = update.where("batch_id", "=", batchId).where("status", "=", "pending");
      if (workerId === undefined) return run(pending);
      const ours = pending.where((eb) =>
        eb.or([
          eb("lease_worker", "is", null),
          eb("lease_worker", "=", workerId),
          eb("lease_worker", "not in", liveWorkers(build)),
        ]),
      );
      return run(ours);
    },
    areLeasedBesides: async (batchId, workerId) => {
      const leased = build.selectFrom("items").select("id").where("batch_id", "=", batchId);
      const others = leased
        .where("lease_token", "is not", null)
        .where("lease_worker", "!=", workerId)
        .where("lease_worker", "in", liveWorkers(build));
      return (await first(others.limit(1))) !== null;
    },
    dropLeases: async (leases) => {
      let count = 0;
      for (const { itemId, leaseToken } of leases) {
        const own = build.updateTable("items").set(NO_LEASE).where("id", "=", itemId);
        count += await run(own.where("lease_token", "=", leaseToken));
      }
      return count;
    },
  };
}

const placeOf = (batchId: string, { afterPosition, offset = 0, limit }: ItemPage) => ({
  batchId,
  after: afterPosition,
  offset,
  limit,
});

function toRow(batchId: string, item: NewItem): Insertable<ItemsTable> {
  const { failed, terms = BATCH_TERMS } = item;
  return {
    batch_id: batchId,
    position: item.position,
    source_index: item.sourceIndex,
    output_index: item.outputIndex,
    custom_id: item.customId,
    prompt: item.prompt,
    status: failed ? "failed" : "pending",
    error: failed ? JSON.stringify(failed.error) : null,
    finished_at_ms: failed?.atMs ?? null,
    not_before_ms: item.notBeforeMs ?? 0,
    tier: terms.tier,
    ratio: terms.ratio,
    keeps_ratio: Number(terms.keepsRatio),
    asked_mime_type: terms.askedMimeType,
    earlier: terms.earlier,
    price_micro_usd: terms.priceMicroUsd,
    hold_micro_usd: terms.holdMicroUsd,
    client_key: terms.clientKey,
  };
}

const toRecordOrNull = (row: Selectable<ItemsTable> | null) => row && toRecord(row);

function toRecord(row: Selectable<ItemsTable>): ItemRecord {
  // With a spread, each record would have a shape of its own, which takes a hundred times as long and much memory.
  return Object.assign(toListed(row), {
    batchId: row.batch_id,
    outputIndex: row.output_index,
    attempts: row.attempts,
    leaseToken: row.lease_token,
    finishedAtMs: row.finished_at_ms,
    failedAt: row.failed_at,
    switches: row.switches,
    jobId: row.job_id,
    tier: row.tier as SizeTier | null,
    ratio: row.ratio as AspectRatio | null,
    keepsRatio: row.keeps_ratio === 1,
    askedMimeType: row.asked_mime_type as ImageMimeType | null,
    earlier: row.earlier,
    holdMicroUsd: row.hold_micro_usd,
    clientKey: row.client_key,
  });
}

function toListed(row: Pick<Selectable<ItemsTable>, (typeof LISTED)[number]>): ListedItem {
  return {
    id: row.id,
    position: row.position,
    sourceIndex: row.source_index,
    customId: row.custom_id,
    prompt: row.prompt,
    status: row.status as ItemStatus,
    mimeType: row.mime_type as ImageMimeType | null,
    imageCount: row.image_count,
    error: row.error === null ? null : JSON.parse(row.error),
    modelVersion: row.model_version,
    provider: row.provider,
    maybePaid: row.maybe_paid as MaybePaid,
    seed: row.seed,
    notes: row.notes === null ? [] : JSON.parse(row.notes),
    usage: row.usage === null ? null : JSON.parse(row.usage),
    priceMicroUsd: row.price_micro_usd,
  };
}
