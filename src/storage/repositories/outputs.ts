import { type Selectable, sql } from "kysely";
import type { ImageMimeType } from "../../contract/image-formats.ts";
import type { OutputRepository } from "../../domain/ports/stores.ts";
import type { OutputRecord } from "../../domain/records.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { OutputsTable } from "../schema.ts";
import { insertRows } from "./rows.ts";

const OF_ITEM = kept((build, { itemId }: Values<{ itemId: number }>) =>
  build.selectFrom("outputs").selectAll().where("item_id", "=", itemId).orderBy("image_index"),
);

export function outputRepository(session: SqlSession): OutputRepository {
  const { build, dialect, all, run, runEach } = session;
  return {
    insertMany: async (outputs) => {
      const rows = outputs.map((output) => ({
        item_id: output.itemId,
        batch_id: output.batchId,
        image_index: output.imageIndex,
        blob_key: output.blobKey,
        size_bytes: output.sizeBytes,
        sha256: output.sha256,
        crc32: output.crc32,
        mime_type: output.mimeType,
        width_px: output.widthPx,
        height_px: output.heightPx,
        entry_name: output.entryName,
      }));
      await insertRows(session, "outputs", rows);
    },
    ofBatch: async (batchId) => {
      const query = build
        .selectFrom("outputs")
        .innerJoin("items", "items.id", "outputs.item_id")
        .selectAll("outputs")
        .where("outputs.batch_id", "=", batchId)
        .orderBy("items.position")
        .orderBy("outputs.image_index");
      return (await all(query)).map(toRecord);
    },
    ofBatches: async (batchIds) => {
      const query = build.selectFrom("outputs").selectAll();
      return (await all(query.where("batch_id", "in", [...batchIds]))).map(toRecord);
    },
    ofItem: async (itemId) => (await all(OF_ITEM(build, { itemId }))).map(toRecord),
    ofItems: async (itemIds) => {
      const query = build.selectFrom("outputs").selectAll().where("item_id", "in", itemIds);
      return (await all(query.orderBy("image_index"))).map(toRecord);
    },
    removeOfItem: async (itemId) => {
      await run(build.deleteFrom("outputs").where("item_id", "=", itemId));
    },
    setEntryNames: async (names) => {
      if (dialect === "postgres") {
        const of = <Value>(value: (name: (typeof names)[number]) => Value) => names.map(value);
        const listed = sql<{ item: number; image: number; name: string }>`
          unnest(${of(({ itemId }) => itemId)}::bigint[], ${of(({ imageIndex }) => imageIndex)}::bigint[],
            ${of(({ entryName }) => entryName)}::text[])`.as<"listed">(sql`listed(item, image, name)`);
        const update = build.updateTable("outputs").from(listed);
        const named = update.set((eb) => ({ entry_name: eb.ref("listed.name") }));
        await run(named.whereRef("item_id", "=", "listed.item").whereRef("image_index", "=", "listed.image"));
        return;
      }
      const update = build.updateTable("outputs").set({ entry_name: "" });
      await runEach(
        update.where("item_id", "=", 0).where("image_index", "=", 0),
        names.map(({ itemId, imageIndex, entryName }) => [entryName, itemId, imageIndex]),
      );
    },
  };
}

function toRecord(row: Selectable<OutputsTable>): OutputRecord {
  return {
    itemId: row.item_id,
    batchId: row.batch_id,
    imageIndex: row.image_index,
    blobKey: row.blob_key,
    sizeBytes: row.size_bytes,
    sha256: row.sha256,
    crc32: row.crc32,
    mimeType: row.mime_type as ImageMimeType,
    widthPx: row.width_px,
    heightPx: row.height_px,
    entryName: row.entry_name,
  };
}
