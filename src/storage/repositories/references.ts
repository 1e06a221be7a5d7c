import type { Selectable } from "kysely";
import type { ImageMimeType } from "../../contract/image-formats.ts";
import type { ReferenceRepository } from "../../domain/ports/stores.ts";
import type { NewReference, ReferenceRecord } from "../../domain/records.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";
import { insertRows } from "./rows.ts";

const OF_SOURCE = kept((build, { batchId, sourceIndex }: Values<{ batchId: string; sourceIndex: number }>) =>
  build
    .selectFrom("reference_images")
    .selectAll()
    .where("batch_id", "=", batchId)
    .where("source_index", "=", sourceIndex)
    .orderBy("ordinal"),
);

export function referenceRepository(session: SqlSession): ReferenceRepository {
  const { build, all, first } = session;
  const ofSources: ReferenceRepository["ofSources"] = async (batchId, sourceIndexes) => {
    const query = build
      .selectFrom("reference_images")
      .selectAll()
      .where("batch_id", "=", batchId)
      .where("source_index", "in", sourceIndexes)
      .orderBy("source_index")
      .orderBy("ordinal");
    return (await all(query)).map(toRecord);
  };
  return {
    insertMany: async (batchId, references) => {
      const rows = references.map((reference) => ({
        batch_id: batchId,
        source_index: reference.sourceIndex,
        ordinal: reference.ordinal,
        reference_id: reference.referenceId,
        type: reference.type,
        mime_type: reference.mimeType,
        blob_key: reference.blobKey,
        sha256: reference.sha256,
        storage_uri: reference.storageUri,
      }));
      await insertRows(session, "reference_images", rows);
    },
    mostOfSource: async (batchId) => {
      const counts = build
        .selectFrom("reference_images")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("batch_id", "=", batchId)
        .groupBy("source_index");
      return (await first(counts.orderBy("count", "desc").limit(1)))?.count ?? 0;
    },
    countBySource: async (batchId) => {
      const counts = build
        .selectFrom("reference_images")
        .select(["source_index", (eb) => eb.fn.countAll<number>().as("count")])
        .where("batch_id", "=", batchId)
        .groupBy("source_index");
      return new Map((await all(counts)).map(({ source_index, count }) => [source_index, count]));
    },
    ofSource: async (batchId, sourceIndex) =>
      (await all(OF_SOURCE(build, { batchId, sourceIndex }))).map(toRecord).map(withoutSource),
    ofSources,
  };
}

function toRecord(row: Selectable<Database["reference_images"]>): NewReference {
  return {
    sourceIndex: row.source_index,
    ordinal: row.ordinal,
    referenceId: row.reference_id,
    type: row.type,
    mimeType: row.mime_type as ImageMimeType,
    blobKey: row.blob_key,
    sha256: row.sha256,
    storageUri: row.storage_uri,
  };
}

function withoutSource({ sourceIndex: _, ...reference }: NewReference): ReferenceRecord {
  return reference;
}
