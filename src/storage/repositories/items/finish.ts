import { sql } from "kysely";
import type { FinishedItem } from "../../../domain/ports/item-repository.ts";
import { kept, type Values } from "../../dialects/kept-query.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import { held, NO_LEASE } from "./queries.ts";

/** The types of the columns that an outcome fills. */
const TYPES = {
  id: "bigint",
  leaseToken: "text",
  status: "text",
  mimeType: "text",
  imageCount: "bigint",
  modelVersion: "text",
  seed: "bigint",
  notes: "text",
  usage: "text",
  error: "text",
  finishedAtMs: "bigint",
} as const;
type Name = keyof typeof TYPES;
type JsonName = "notes" | "usage" | "error";
type Row = Omit<FinishedItem, JsonName> & Record<JsonName, string | null>;
const NAMES = Object.keys(TYPES) as Name[];

/** See `ItemRepository.finish`. */
export async function finishItems<T extends FinishedItem>(
  { build, dialect, all, run }: SqlSession,
  items: readonly T[],
): Promise<T[]> {
  const rows = items.map(toRow);
  if (dialect === "sqlite") {
    const isOurs: boolean[] = [];
    for (const row of rows) isOurs.push((await run(FINISH(build, row))) === 1);
    return items.filter((_, at) => isOurs[at]);
  }
  const lists = Object.fromEntries(NAMES.map((name) => [name, rows.map((row) => row[name])]));
  const ours = new Set((await all(FINISH_ALL(build, lists as Lists))).map(({ at }) => at));
  return items.filter((_, at) => ours.has(at + 1));
}

function toRow({ notes, usage, error, ...rest }: FinishedItem): Row {
  return {
    ...rest,
    notes: notes.length === 0 ? null : JSON.stringify(notes),
    usage: usage && JSON.stringify(usage),
    error: error && JSON.stringify(error),
  };
}

const FINISH = kept((build, item: Values<Row>) =>
  held(build, item).set({
    status: item.status,
    mime_type: item.mimeType,
    image_count: item.imageCount,
    model_version: item.modelVersion,
    seed: item.seed,
    notes: item.notes,
    usage: item.usage,
    error: item.error,
    finished_at_ms: item.finishedAtMs,
    ...NO_LEASE,
  }),
);

type Lists = Record<Name, unknown[]>;

/** The same for any number of items. Returns the numbers of those that were still held, from 1. */
const FINISH_ALL = kept((build, lists: Values<Lists>) => {
  const columns = NAMES.map((name) => sql`${lists[name]}::${sql.raw(TYPES[name])}[]`);
  const names = sql.join([...NAMES, "at"].map((name) => sql.ref(name)));
  const finished = sql<Row & { at: number }>`unnest(${sql.join(columns)}) with ordinality`.as<"finished">(
    sql`finished(${names})`,
  );
  return build
    .updateTable("items")
    .from(finished)
    .set((eb) => ({
      status: eb.ref("finished.status"),
      mime_type: eb.ref("finished.mimeType"),
      image_count: eb.ref("finished.imageCount"),
      model_version: eb.ref("finished.modelVersion"),
      seed: eb.ref("finished.seed"),
      notes: eb.ref("finished.notes"),
      usage: eb.ref("finished.usage"),
      error: eb.ref("finished.error"),
      finished_at_ms: eb.ref("finished.finishedAtMs"),
      ...NO_LEASE,
    }))
    .whereRef("items.id", "=", "finished.id")
    .where("items.status", "=", "pending")
    .whereRef("items.lease_token", "=", "finished.leaseToken")
    .returning("finished.at");
});
