import { sql } from "kysely";
import type { Repositories } from "../../domain/ports/stores.ts";
import { MASK_ORDINAL } from "../../domain/records.ts";
import { arrayOf } from "../dialects/postgres-session.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import { columnsOf, insertRows } from "./rows.ts";

function fileRepository(session: SqlSession): Repositories["files"] {
  const { build, all, first, run } = session;
  const files = () => build.selectFrom("files").selectAll();
  return {
    insert: (file) => insertRows(session, "files", [file]),
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
    setExpiry: (blobKey, expiresAtMs) =>
      run(build.updateTable("files").set({ expiresAtMs }).where("blobKey", "=", blobKey)),
    remove: (blobKey) => run(build.deleteFrom("files").where("blobKey", "=", blobKey)),
    blobKeys: async () =>
      (await all(build.selectFrom("files").select("blobKey"))).map(({ blobKey }) => blobKey),
  };
}

function uploadRepository(session: SqlSession): Repositories["uploads"] {
  const { build, all, first, run, changes } = session;
  const uploads = () => build.selectFrom("uploads").selectAll();
  return {
    insert: (upload) => insertRows(session, "uploads", [upload]),
    find: (id) => first(uploads().where("id", "=", id)),
    openOfKey: (apiKeyId) => all(uploads().where("apiKeyId", "=", apiKeyId).where("fileId", "is", null)),
    change: async ({ id, receivedBytes }, change) => {
      const update = build.updateTable("uploads").set(columnsOf("uploads", change)).where("id", "=", id);
      const same = update.where("receivedBytes", "=", receivedBytes).where("fileId", "is", null);
      return { isChanged: (await changes(same)) > 0 };
    },
    idleSince: (ms) => all(uploads().where("touchedAtMs", "<=", ms)),
    remove: (id) => run(build.deleteFrom("uploads").where("id", "=", id)),
  };
}

const OF_ITEM = prepared((build, { itemId }: Values<{ itemId: number }>) =>
  build.selectFrom("outputs").selectAll().where("itemId", "=", itemId).orderBy("imageIndex"),
);

function outputRepository(session: SqlSession): Repositories["outputs"] {
  const { build, dialect, all, run, runEach } = session;
  return {
    insertMany: (outputs) => insertRows(session, "outputs", outputs),
    ofBatch: async (batchId) => {
      const query = build
        .selectFrom("outputs")
        .innerJoin("items", "items.id", "outputs.itemId")
        .selectAll("outputs")
        .where("outputs.batchId", "=", batchId)
        .orderBy("items.position")
        .orderBy("outputs.imageIndex");
      return all(query);
    },
    ofItem: (itemId) => all(OF_ITEM(build, { itemId })),
    ofItems: async (itemIds) => {
      const query = build.selectFrom("outputs").selectAll().where("itemId", "in", itemIds);
      return all(query.orderBy("imageIndex"));
    },
    removeOfItem: (itemId) => run(build.deleteFrom("outputs").where("itemId", "=", itemId)),
    setEntryNames: async (names) => {
      if (dialect === "postgres") {
        const of = <Value>(value: (name: (typeof names)[number]) => Value) => arrayOf(names.map(value));
        const listed = sql<{ item: number; image: number; name: string }>`
          unnest(${of(({ itemId }) => itemId)}::bigint[], ${of(({ imageIndex }) => imageIndex)}::bigint[],
            ${of(({ entryName }) => entryName)}::text[])`.as<"listed">(sql`listed(item, image, name)`);
        const update = build.updateTable("outputs").from(listed);
        const named = update.set((eb) => ({ entryName: eb.ref("listed.name") }));
        await run(named.whereRef("itemId", "=", "listed.item").whereRef("imageIndex", "=", "listed.image"));
        return;
      }
      const update = build.updateTable("outputs").set({ entryName: "" });
      await runEach(
        update.where("itemId", "=", 0).where("imageIndex", "=", 0),
        names.map(({ itemId, imageIndex, entryName }) => [entryName, itemId, imageIndex]),
      );
    },
  };
}

const REFERENCE = ["ordinal", "referenceId", "type", "mimeType", "blobKey", "sha256"] as const;

const OF_SOURCE = prepared(
  (build, { batchId, sourceIndex }: Values<{ batchId: string; sourceIndex: number }>) =>
    build
      .selectFrom("reference_images")
      .select(REFERENCE)
      .where("batchId", "=", batchId)
      .where("sourceIndex", "=", sourceIndex)
      .orderBy("ordinal"),
);

function referenceRepository(session: SqlSession): Repositories["references"] {
  const { build, all } = session;
  return {
    insertMany: async (batchId, references) => {
      const rows = references.map((reference) => ({ batchId, ...reference }));
      await insertRows(session, "reference_images", rows);
    },
    countBySource: async (batchId) => {
      const counts = build
        .selectFrom("reference_images")
        .select(["sourceIndex", (eb) => eb.fn.countAll<number>().as("count")])
        .where("batchId", "=", batchId)
        .where("ordinal", "!=", MASK_ORDINAL)
        .groupBy("sourceIndex");
      return new Map((await all(counts)).map(({ sourceIndex, count }) => [sourceIndex, count]));
    },
    ofSource: (batchId, sourceIndex) => all(OF_SOURCE(build, { batchId, sourceIndex })),
    ofSources: (batchId, sourceIndexes) =>
      all(
        build
          .selectFrom("reference_images")
          .select([...REFERENCE, "sourceIndex"])
          .where("batchId", "=", batchId)
          .where("sourceIndex", "in", sourceIndexes)
          .where("ordinal", "!=", MASK_ORDINAL)
          .orderBy("sourceIndex")
          .orderBy("ordinal"),
      ),
  };
}

export const fileRepositories = (session: SqlSession) => ({
  files: fileRepository(session),
  uploads: uploadRepository(session),
  outputs: outputRepository(session),
  references: referenceRepository(session),
});
