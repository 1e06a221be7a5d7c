import type { Selectable } from "kysely";
import type { UploadRecord, UploadRepository } from "../../../domain/ports/shared-records.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Database } from "../../schema.ts";

export function uploadRepository({ build, all, first, run }: SqlSession): UploadRepository {
  const uploads = () => build.selectFrom("uploads").selectAll();
  return {
    insert: async (upload) => {
      const values = {
        id: upload.id,
        api_key_id: upload.apiKeyId,
        facts: JSON.stringify(upload.facts),
        announced_bytes: upload.announcedBytes,
        received_bytes: upload.receivedBytes,
        parts: JSON.stringify(upload.parts),
        file_id: upload.fileId,
        touched_at_ms: upload.touchedAtMs,
      };
      await run(build.insertInto("uploads").values(values));
    },
    find: async (id) => {
      const row = await first(uploads().where("id", "=", id));
      return row && toRecord(row);
    },
    openOfKey: async (apiKeyId) =>
      (await all(uploads().where("api_key_id", "=", apiKeyId).where("file_id", "is", null))).map(toRecord),
    change: async ({ id, receivedBytes }, change) => {
      const values = {
        ...(change.receivedBytes === undefined ? {} : { received_bytes: change.receivedBytes }),
        ...(change.parts === undefined ? {} : { parts: JSON.stringify(change.parts) }),
        ...(change.fileId === undefined ? {} : { file_id: change.fileId }),
        ...(change.touchedAtMs === undefined ? {} : { touched_at_ms: change.touchedAtMs }),
      };
      const update = build.updateTable("uploads").set(values).where("id", "=", id);
      const same = update.where("received_bytes", "=", receivedBytes).where("file_id", "is", null);
      return { isChanged: (await run(same)) > 0 };
    },
    idleSince: async (ms) => (await all(uploads().where("touched_at_ms", "<=", ms))).map(toRecord),
    remove: async (id) => {
      await run(build.deleteFrom("uploads").where("id", "=", id));
    },
  };
}

function toRecord(row: Selectable<Database["uploads"]>): UploadRecord {
  return {
    id: row.id,
    apiKeyId: row.api_key_id,
    facts: JSON.parse(row.facts),
    announcedBytes: row.announced_bytes,
    receivedBytes: row.received_bytes,
    parts: JSON.parse(row.parts),
    fileId: row.file_id,
    touchedAtMs: row.touched_at_ms,
  };
}
