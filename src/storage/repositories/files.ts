import type { Selectable } from "kysely";
import type { FileRecord, FileRepository } from "../../domain/ports/files.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

export function fileRepository({ build, all, first, run }: SqlSession): FileRepository {
  const files = () => build.selectFrom("files").selectAll();
  return {
    insert: async (file) => {
      const values = {
        id: file.id,
        api_key_id: file.apiKeyId,
        display_name: file.displayName,
        mime_type: file.mimeType,
        purpose: file.purpose,
        size_bytes: file.sizeBytes,
        sha256: file.sha256,
        blob_key: file.blobKey,
        created_at_ms: file.createdAtMs,
        expires_at_ms: file.expiresAtMs,
      };
      await run(build.insertInto("files").values(values));
    },
    find: async (apiKeyId, id) => {
      const row = await first(files().where("api_key_id", "=", apiKeyId).where("id", "=", id));
      return row && toRecord(row);
    },
    page: async ({ apiKeyId, nowMs, order, afterSeq, purpose, limit }) => {
      let query = files().where("api_key_id", "=", apiKeyId).where("expires_at_ms", ">", nowMs);
      const [direction, behind] =
        order === "oldest-first" ? (["asc", ">"] as const) : (["desc", "<"] as const);
      if (afterSeq !== undefined) query = query.where("seq", behind, afterSeq);
      if (purpose !== undefined) query = query.where("purpose", "=", purpose);
      return (await all(query.orderBy("seq", direction).limit(limit))).map(toRecord);
    },
    bytesOf: async (apiKeyId, nowMs) => {
      const query = build
        .selectFrom("files")
        .select((eb) => eb.fn.sum<number | null>("size_bytes").as("bytes"))
        .where("api_key_id", "=", apiKeyId)
        .where("expires_at_ms", ">", nowMs);
      return (await first(query))?.bytes ?? 0;
    },
    due: async (nowMs, { afterSeq, limit }) => {
      const query = files().where("expires_at_ms", "<=", nowMs).where("seq", ">", afterSeq);
      return (await all(query.orderBy("seq").limit(limit))).map(toRecord);
    },
    setExpiry: async (blobKey, expiresAtMs) => {
      await run(
        build.updateTable("files").set({ expires_at_ms: expiresAtMs }).where("blob_key", "=", blobKey),
      );
    },
    remove: async (blobKey) => {
      await run(build.deleteFrom("files").where("blob_key", "=", blobKey));
    },
    blobKeys: async () =>
      (await all(build.selectFrom("files").select("blob_key"))).map(({ blob_key }) => blob_key),
  };
}

function toRecord(row: Selectable<Database["files"]>): FileRecord & { seq: number } {
  return {
    seq: row.seq,
    id: row.id,
    apiKeyId: row.api_key_id,
    displayName: row.display_name,
    mimeType: row.mime_type,
    purpose: row.purpose,
    sizeBytes: row.size_bytes,
    sha256: row.sha256,
    blobKey: row.blob_key,
    createdAtMs: row.created_at_ms,
    expiresAtMs: row.expires_at_ms,
  };
}
