import type { Selectable } from "kysely";
import type { ImageMimeType } from "../../../contract/image-formats.ts";
import type { LinkedImageRecord } from "../../../domain/ports/realtime-records.ts";
import type { LinkedImageRepository } from "../../../domain/ports/stores.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Database } from "../../schema.ts";

export function linkedImageRepository({ build, all, first, run }: SqlSession): LinkedImageRepository {
  const images = () => build.selectFrom("linked_images").selectAll();
  return {
    insert: async ({ id, mimeType, sizeBytes, expiresAtMs }) => {
      const values = { id, mime_type: mimeType, size_bytes: sizeBytes, expires_at_ms: expiresAtMs };
      await run(build.insertInto("linked_images").values(values));
    },
    find: async (id) => {
      const row = await first(images().where("id", "=", id));
      return row && toRecord(row);
    },
    due: async (nowMs, { afterSeq, limit }) => {
      const query = images().where("expires_at_ms", "<=", nowMs).where("seq", ">", afterSeq);
      return (await all(query.orderBy("seq").limit(limit))).map(toRecord);
    },
    remove: async (id) => {
      await run(build.deleteFrom("linked_images").where("id", "=", id));
    },
  };
}

function toRecord(row: Selectable<Database["linked_images"]>): LinkedImageRecord & { seq: number } {
  return {
    seq: row.seq,
    id: row.id,
    mimeType: row.mime_type as ImageMimeType,
    sizeBytes: row.size_bytes,
    expiresAtMs: row.expires_at_ms,
  };
}
