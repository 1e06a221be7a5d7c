import type { Repositories } from "../../domain/ports/stores.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import { columnsOf, insertRows } from "./rows.ts";

export function fileRepository(session: SqlSession): Repositories["files"] {
  const { build, all, first, run } = session;
  const files = () => build.selectFrom("files").selectAll();
  return {
    insert: async (file) => {
      await insertRows(session, "files", [file]);
    },
    find: (apiKeyId, id) => first(files().where("apiKeyId", "=", apiKeyId).where("id", "=", id)),
    page: async ({ apiKeyId, nowMs, order, afterSeq, purpose, limit }) => {
      let query = files().where("apiKeyId", "=", apiKeyId).where("expiresAtMs", ">", nowMs);
      const [direction, behind] =
        order === "oldest-first" ? (["asc", ">"] as const) : (["desc", "<"] as const);
      if (afterSeq !== undefined) query = query.where("seq", behind, afterSeq);
      if (purpose !== undefined) query = query.where("purpose", "=", purpose);
      return all(query.orderBy("seq", direction).limit(limit));
    },
    bytesOf: async (apiKeyId, nowMs) => {
      const query = build
        .selectFrom("files")
        .select((eb) => eb.fn.sum<number | null>("sizeBytes").as("bytes"))
        .where("apiKeyId", "=", apiKeyId)
        .where("expiresAtMs", ">", nowMs);
      return (await first(query))?.bytes ?? 0;
    },
    due: async (nowMs, { afterSeq, limit }) => {
      const query = files().where("expiresAtMs", "<=", nowMs).where("seq", ">", afterSeq);
      return all(query.orderBy("seq").limit(limit));
    },
    setExpiry: async (blobKey, expiresAtMs) => {
      await run(build.updateTable("files").set({ expiresAtMs: expiresAtMs }).where("blobKey", "=", blobKey));
    },
    remove: async (blobKey) => {
      await run(build.deleteFrom("files").where("blobKey", "=", blobKey));
    },
    blobKeys: async () =>
      (await all(build.selectFrom("files").select("blobKey"))).map(({ blobKey }) => blobKey),
  };
}

export function uploadRepository(session: SqlSession): Repositories["uploads"] {
  const { build, all, first, run } = session;
  const uploads = () => build.selectFrom("uploads").selectAll();
  return {
    insert: async (upload) => {
      await insertRows(session, "uploads", [upload]);
    },
    find: (id) => first(uploads().where("id", "=", id)),
    openOfKey: (apiKeyId) => all(uploads().where("apiKeyId", "=", apiKeyId).where("fileId", "is", null)),
    change: async ({ id, receivedBytes }, change) => {
      const update = build.updateTable("uploads").set(columnsOf("uploads", change)).where("id", "=", id);
      const same = update.where("receivedBytes", "=", receivedBytes).where("fileId", "is", null);
      return { isChanged: (await run(same)) > 0 };
    },
    idleSince: (ms) => all(uploads().where("touchedAtMs", "<=", ms)),
    remove: async (id) => {
      await run(build.deleteFrom("uploads").where("id", "=", id));
    },
  };
}
