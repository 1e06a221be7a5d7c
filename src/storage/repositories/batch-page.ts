import { setImmediate } from "node:timers/promises";
import { sql } from "kysely";
import type { BatchPage } from "../../domain/ports/batches.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import { columnNames } from "./rows.ts";

/** The columns of a batch that its record has. */
export const BATCH = columnNames<keyof BatchRecord>("batches", ["taskNameFolded", "owner", "served"]);

/** This many rows are looked at in one go, which takes some milliseconds. Other requests are answered before the next. */
const WINDOW_ROWS = 5000;

type BatchRow = BatchRecord & { seq: number };
type Place = NonNullable<BatchPage["after"]>;

/**
 * Returns a page of the batches of a key. Those that no index finds are looked for in one window after the other, which
 * must not happen inside a transaction.
 */
export async function batchPage(session: SqlSession, filter: BatchPage): Promise<BatchRow[]> {
  const found: BatchRow[] = [];
  let { after, offset = 0 } = filter;
  for (let isLast = isIndexed(filter); ; await setImmediate()) {
    const rest: BatchPage = { ...filter, ...(after && { after }) };
    const end = isLast ? null : await endOfWindow(session, rest);
    isLast = end === null;
    const inWindow = matching(session, rest, end);
    const count = isLast || offset === 0 ? null : await countOf(session, inWindow);
    if (count !== null && count <= offset) {
      offset -= count;
    } else {
      const page = inWindow
        .select([...BATCH, "seq"])
        .orderBy("createdAtMs", "desc")
        .orderBy("seq", "desc");
      found.push(...(await session.all(page.limit(filter.limit - found.length).offset(offset))));
      offset = 0;
    }
    if (end === null || found.length === filter.limit) return found;
    after = end;
  }
}

/** Whether an index finds exactly the rows of the page. */
function isIndexed({ status, source, taskName, isDownloaded, offset = 0 }: BatchPage): boolean {
  const isNarrowedTwice = status !== undefined && isDownloaded !== undefined;
  return taskName === undefined && source === undefined && offset === 0 && !isNarrowedTwice;
}

/** Returns the batches that an index finds. The other filters then look at them, window by window. */
function candidates({ build, dialect }: SqlSession, filter: BatchPage) {
  const { status, isDownloaded, fromMs, beforeMs, after } = filter;
  let query = build.selectFrom("batches").where("apiKeyId", "=", filter.apiKeyId);
  // No index covers both the status and the download.
  if (status !== undefined) query = query.where("status", "=", status);
  else if (isDownloaded !== undefined) {
    // Written as in the index. SQLite has no booleans: it compares with 0 or 1.
    const isIt = sql<boolean>`((downloaded_at_ms is null) = ${sql.lit(dialect === "sqlite" ? Number(!isDownloaded) : !isDownloaded)})`;
    query = query.where(isIt);
  }
  if (fromMs !== undefined) query = query.where("createdAtMs", ">=", fromMs);
  if (beforeMs !== undefined) query = query.where("createdAtMs", "<", beforeMs);
  if (after !== undefined) {
    query = query.where((eb) =>
      eb(eb.refTuple("createdAtMs", "seq"), "<", eb.tuple(after.createdAtMs, after.seq)),
    );
  }
  return query;
}

/** The place of the last batch of the next window; null when there are fewer. */
async function endOfWindow(session: SqlSession, filter: BatchPage): Promise<Place | null> {
  const places = candidates(session, filter)
    .select(["createdAtMs", "seq"])
    .orderBy("createdAtMs", "desc")
    .orderBy("seq", "desc");
  return session.first(places.limit(1).offset(WINDOW_ROWS - 1));
}

/** The batches of the page in a window, which ends with the row at `end`; null: it has no end. */
function matching(session: SqlSession, filter: BatchPage, end: Place | null) {
  const { status, source, taskName, isDownloaded, hidesRetries } = filter;
  const { fromMs = 0, beforeMs = Number.MAX_SAFE_INTEGER } = filter;
  const downloaded = isDownloaded === undefined ? null : isDownloaded ? "is not" : "is";
  const isNamed = (table: "batches" | "parent") => {
    // A function that knows no wildcards.
    const positionOf = sql.raw(session.dialect === "sqlite" ? "instr" : "strpos");
    const name = sql.ref(`${table}.taskNameFolded`);
    return sql<boolean>`${positionOf}(${name}, ${(taskName ?? "").toLowerCase()}) > 0`;
  };
  let query = candidates(session, filter).where("recordDeletedAtMs", "is", null);
  if (hidesRetries) {
    query = query.where(({ not, exists, selectFrom }) => {
      let listed = selectFrom("batches as parent").select("parent.id");
      listed = listed.whereRef("parent.id", "=", "batches.parentBatchId");
      listed = listed.where("parent.recordDeletedAtMs", "is", null);
      listed = listed.where("parent.createdAtMs", ">=", fromMs).where("parent.createdAtMs", "<", beforeMs);
      if (status !== undefined) listed = listed.where("parent.status", "=", status);
      if (taskName !== undefined) listed = listed.where(isNamed("parent"));
      if (downloaded !== null) listed = listed.where("parent.downloadedAtMs", downloaded, null);
      return not(exists(listed));
    });
  }
  if (source !== undefined) query = query.where("source", "=", source);
  if (downloaded !== null) query = query.where("downloadedAtMs", downloaded, null);
  if (taskName !== undefined) query = query.where(isNamed("batches"));
  if (end !== null) {
    query = query.where((eb) =>
      eb(eb.refTuple("createdAtMs", "seq"), ">=", eb.tuple(end.createdAtMs, end.seq)),
    );
  }
  return query;
}

async function countOf(session: SqlSession, rows: ReturnType<typeof matching>): Promise<number> {
  return (await session.first(rows.select((eb) => eb.fn.countAll<number>().as("count"))))?.count ?? 0;
}
