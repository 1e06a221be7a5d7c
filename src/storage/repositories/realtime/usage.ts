import { type Selectable, sql } from "kysely";
import type { AspectRatio, ImageMimeType, SizeTier } from "../../../contract/image-formats.ts";
import type { UsageRecord } from "../../../domain/ports/realtime-records.ts";
import type { UsageRepository } from "../../../domain/ports/stores.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Database } from "../../schema.ts";
import { insertRows } from "../rows.ts";

export function usageRepository(session: SqlSession): UsageRepository {
  const { build, all, first } = session;
  return {
    insertMany: async (records) => {
      const rows = records.map(toRow);
      await insertRows(session, "usage_records", rows);
    },
    list: async ({ accountId }) => {
      let query = build.selectFrom("usage_records").selectAll().orderBy("seq");
      if (accountId !== undefined) query = query.where("account_id", "=", accountId);
      return (await all(query)).map(toRecord);
    },
    byDay: async ({ apiKeyId, accountIds, fromMs, beforeMs }) => {
      const ofBatches = build
        .selectFrom("batches")
        .select(["account_id", "model", "success_count as images", "actual_micro_usd as amount"])
        .select(sql<number>`settled_at_ms / 86400000 * 86400000`.as("day_ms"))
        .where("api_key_id", "=", apiKeyId)
        .where("settled_at_ms", ">=", fromMs)
        .where("settled_at_ms", "<", beforeMs);
      const ofRealtime = build
        .selectFrom("usage_records")
        .select(["account_id", "model", sql<number>`1`.as("images"), "amount_micro_usd as amount"])
        .select(sql<number>`created_at_ms / 86400000 * 86400000`.as("day_ms"))
        .where("account_id", "in", accountIds)
        .where("api_key_id", "=", apiKeyId)
        .where("created_at_ms", ">=", fromMs)
        .where("created_at_ms", "<", beforeMs);
      const query = build
        .selectFrom(ofBatches.unionAll(ofRealtime).as("paid"))
        .select(["day_ms as dayMs", "model", "account_id as accountId"])
        .select((eb) => eb.fn.sum<number>("images").as("imageCount"))
        .select((eb) => eb.fn.sum<number>("amount").as("amountMicroUsd"))
        .groupBy(["day_ms", "model", "account_id"])
        .orderBy("day_ms")
        .orderBy("model")
        .orderBy("account_id");
      return all(query);
    },
    count: async () =>
      (await first(build.selectFrom("usage_records").select(({ fn }) => fn.countAll<number>().as("n"))))?.n ??
      0,
  };
}

function toRow(record: UsageRecord) {
  return {
    realtime_id: record.realtimeId,
    image_index: record.imageIndex,
    api_key_id: record.apiKeyId,
    account_id: record.accountId,
    model: record.model,
    executed_model: record.executedModel,
    provider: record.provider,
    size: record.size,
    ratio: record.ratio,
    mime_type: record.mimeType,
    width_px: record.widthPx,
    height_px: record.heightPx,
    size_bytes: record.sizeBytes,
    amount_micro_usd: record.amountMicroUsd,
    created_at_ms: record.createdAtMs,
  };
}

function toRecord(row: Selectable<Database["usage_records"]>): UsageRecord {
  return {
    realtimeId: row.realtime_id,
    imageIndex: row.image_index,
    apiKeyId: row.api_key_id,
    accountId: row.account_id,
    model: row.model,
    executedModel: row.executed_model,
    provider: row.provider,
    size: row.size as SizeTier,
    ratio: row.ratio as AspectRatio,
    mimeType: row.mime_type as ImageMimeType,
    widthPx: row.width_px,
    heightPx: row.height_px,
    sizeBytes: row.size_bytes,
    amountMicroUsd: row.amount_micro_usd,
    createdAtMs: row.created_at_ms,
  };
}
