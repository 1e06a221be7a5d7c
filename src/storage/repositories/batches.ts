import { setImmediate } from "node:timers/promises";
import { sql } from "kysely";
import { type BatchStatus, UNFINISHED_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { BatchPage, Repositories } from "../../domain/ports/stores.ts";
import type { BatchEvent, BatchRecord, GoesOn } from "../../domain/records.ts";
import { arrayOf } from "../dialects/postgres-session.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import { columnNames, columnsOf, insertRows } from "./rows.ts";
import { liveWorkers } from "./workers.ts";

/** The columns of a batch that its record has. */
const BATCH = columnNames<keyof BatchRecord>("batches", ["taskNameFolded", "owner", "served"]);

/** This many rows are looked at in one go, which takes some milliseconds. Other requests are answered before the next. */
const WINDOW_ROWS = 5000;

type BatchRow = BatchRecord & { seq: number };
type Place = NonNullable<BatchPage["after"]>;

/**
 * Returns a page of the batches of a key. Those that no index finds are looked for in one window after the other, which
 * must not happen inside a transaction.
 */
async function batchPage(session: SqlSession, filter: BatchPage): Promise<BatchRow[]> {
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

/** The statuses of batches that are at work. */
const BEGUN: readonly BatchStatus[] = ["running", "processing_results", "settling"];

const BY_ID = prepared((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("batches").select(BATCH).where("id", "=", id),
);

const CHANGE_STATUS = prepared(
  (build, { id, from, to }: Values<{ id: string; from: BatchStatus; to: BatchStatus }>) =>
    build.updateTable("batches").set({ status: to }).where("id", "=", id).where("status", "=", from),
);

type CountChange = Parameters<Repositories["batches"]["addCounts"]>[0];

const ADD_COUNTS = prepared((build, { id, success, fail }: Values<CountChange>) =>
  build
    .updateTable("batches")
    .set((eb) => ({
      successCount: eb("successCount", "+", success),
      failCount: eb("failCount", "+", fail),
      waitingSinceMs: sql<number | null>`case when ${success} > 0 then null else waiting_since_ms end`,
    }))
    .where("id", "=", id),
);

type CountLists = Record<keyof CountChange, unknown[]>;

/** The same for any number of batches. */
const ADD_ALL_COUNTS = prepared((build, { id, success, fail }: Values<CountLists>) => {
  const added = sql<CountChange>`unnest(${id}::text[], ${success}::bigint[], ${fail}::bigint[])`;
  return build
    .updateTable("batches")
    .from(added.as<"added">(sql`added(id, success, fail)`))
    .set((eb) => ({
      successCount: eb("successCount", "+", eb.ref("added.success")),
      failCount: eb("failCount", "+", eb.ref("added.fail")),
      waitingSinceMs: sql<number | null>`case when added.success > 0 then null else waiting_since_ms end`,
    }))
    .whereRef("batches.id", "=", "added.id");
});

const APPEND_EVENT = prepared((build, event: Values<BatchEvent>) =>
  build
    .insertInto("batch_events")
    .values({ batchId: event.batchId, from: event.from, to: event.to, atMs: event.atMs }),
);

/** The owner of a batch; null when it is not alive. */
const liveOwner = (build: SqlSession["build"]) =>
  build.selectFrom("workers").select("workers.id").whereRef("workers.id", "=", sql.ref("batches.owner"));

/** The queues that have work, that of the key first which was served least recently. */
const QUEUES = prepared((build, { goesOn }: Values<{ goesOn: GoesOn }>) => {
  const open = build
    .selectFrom("batches")
    .select(["provider", "apiKeyId", "goesOn"])
    .distinct()
    .where("goesOn", "=", goesOn);
  return build
    .selectFrom(open.where("status", "in", ["queued", "running"]).as("open"))
    .select(["open.provider", "open.apiKeyId", "open.goesOn"])
    .orderBy((eb) =>
      eb
        .selectFrom("batches")
        .select((of) => of.fn.max("batches.served").as("served"))
        .whereRef("batches.apiKeyId", "=", "open.apiKeyId"),
    )
    .orderBy("open.apiKeyId")
    .orderBy("open.provider");
});

type QueueOf = Parameters<Repositories["batches"]["nextOf"]>[0] & {
  status: BatchStatus;
  nowMs: number;
  limit: number;
};

/** The first batches of a queue with a status, and whether each has an item to start. */
const FIRST_OF_QUEUE = prepared((build, queue: Values<QueueOf>) => {
  const first = build
    .selectFrom("batches")
    .select(["id", "served", "seq"])
    .where("status", "=", queue.status)
    .where("provider", "=", queue.provider)
    .where("apiKeyId", "=", queue.apiKeyId)
    .where("goesOn", "=", queue.goesOn)
    .where((eb) => eb.or([eb("input", "is", null), eb("inputReadAtMs", "is not", null)]))
    .orderBy("seq")
    .limit(queue.limit);
  const startable = build
    .selectFrom("items")
    .select("items.id")
    .whereRef("items.batchId", "=", sql.ref("first.id"))
    .where("items.status", "=", "pending")
    .where("items.leaseToken", "is", null)
    .where("items.jobId", "is", null)
    .where((eb) =>
      eb.or([eb("items.notBeforeMs", "<=", queue.nowMs), eb("items.delayedAtMs", ">", queue.nowMs)]),
    );
  return build
    .selectFrom(first.as("first"))
    .select(["first.id", "first.served", "first.seq"])
    .select((eb) => eb.exists(startable).as("isStartable"));
});

/** In a queue, the running batches and the next ones share the turns, so many of them. */
const MOST_IN_TURN = 32;

const SERVE = prepared((build, { id }: Values<{ id: string }>) =>
  build
    .updateTable("batches")
    .set({ served: sql<number>`(select max(served) + 1 from batches)` })
    .where("id", "=", id),
);

const OWNER_OF = prepared((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("batches").select("owner").where("id", "=", id),
);

const BECOME_OWNER = prepared((build, { id, workerId }: Values<{ id: string; workerId: string }>) =>
  build
    .updateTable("batches")
    .set({ owner: workerId })
    .where("id", "=", id)
    .where((eb) =>
      eb.or([eb("owner", "is", null), eb("owner", "=", workerId), eb("owner", "not in", liveWorkers(build))]),
    ),
);

export function batchRepository(session: SqlSession): Repositories["batches"] {
  const { build, dialect, first, all, run, changes } = session;
  const batches = () => build.selectFrom("batches").select(BATCH);
  return {
    insert: (batch) =>
      insertRows(session, "batches", [{ ...batch, taskNameFolded: batch.taskName.toLowerCase() }]),
    byId: (id) => first(BY_ID(build, { id })),
    placeOf: (id) => first(build.selectFrom("batches").select(["createdAtMs", "seq"]).where("id", "=", id)),
    page: (filter) => batchPage(session, filter),
    outputsDue: async (nowMs, { afterSeq, limit }) => {
      const due = build
        .selectFrom("batches")
        .select(["id", "seq"])
        .where((eb) =>
          eb.or([
            eb.and([
              eb("status", "in", ["completed", "failed", "cancelled"]),
              eb("outputsExpireAtMs", "<=", nowMs),
            ]),
            eb.and([eb("status", "=", "output_deleted"), eb("outputsPurgedAtMs", "is", null)]),
          ]),
        );
      return all(due.where("seq", ">", afterSeq).orderBy("seq").limit(limit));
    },
    keptSince: (endedBeforeMs, { afterSeq, limit }) => {
      const kept = build
        .selectFrom("batches")
        .select(["id", "seq"])
        .where("status", "in", ["completed", "failed", "cancelled"])
        .where("endedAtMs", "<=", endedBeforeMs);
      return all(kept.where("seq", ">", afterSeq).orderBy("seq").limit(limit));
    },
    inputsDue: async (endedBeforeMs, { afterSeq, limit }) => {
      const due = build
        .selectFrom("batches")
        .select(["id", "seq"])
        .where("inputsPurgedAtMs", "is", null)
        .where("endedAtMs", "<=", endedBeforeMs);
      return all(due.where("seq", ">", afterSeq).orderBy("seq").limit(limit));
    },
    countUnended: async (apiKeyId, source) => {
      const query = build
        .selectFrom("batches")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("apiKeyId", "=", apiKeyId)
        .where("status", "in", UNFINISHED_BATCH_STATUSES)
        .where("source", "=", source);
      return (await first(query))?.count ?? 0;
    },
    withStatus: (statuses) =>
      all(
        batches()
          .where("status", "in", [...statuses])
          .orderBy("seq"),
      ),
    retriesOf: (apiKeyId, parentIds, limit) => {
      const own = build
        .selectFrom("batches")
        .select([...BATCH, "seq"])
        .select(sql<number>`row_number() over (partition by parent_batch_id order by seq desc)`.as("age"))
        .where("apiKeyId", "=", apiKeyId)
        .where("recordDeletedAtMs", "is", null)
        .where("parentBatchId", "in", [...parentIds]);
      return all(build.selectFrom(own.as("own")).select(BATCH).where("age", "<=", limit).orderBy("seq"));
    },
    latest: (limit) =>
      all(batches().where("recordDeletedAtMs", "is", null).orderBy("seq", "desc").limit(limit)),
    queues: (goesOn) => all(QUEUES(build, { goesOn })),
    nextOf: async (queue, nowMs) => {
      const ofQueue = (first: { status: BatchStatus; nowMs: number; limit: number }) =>
        all(FIRST_OF_QUEUE(build, { ...queue, ...first }));
      const running = await ofQueue({ status: "running", nowMs, limit: MOST_IN_TURN });
      const limit = MOST_IN_TURN - running.length;
      const queued = await ofQueue({ status: "queued", nowMs: Number.MAX_SAFE_INTEGER, limit });
      return [...running, ...queued]
        .filter(({ isStartable }) => isStartable)
        .sort((a, b) => a.served - b.served || a.seq - b.seq)
        .map(({ id }) => id);
    },
    serve: (id) => run(SERVE(build, { id })),
    unread: async (goesOn) => {
      const ofKeys = build
        .selectFrom("batches")
        .select((eb) => eb.fn.min("seq").as("seq"))
        .where("status", "=", "queued")
        .where("goesOn", "=", goesOn)
        .where("input", "is not", null)
        .where("inputReadAtMs", "is", null)
        .groupBy("apiKeyId");
      return all(
        build.selectFrom("batches").select(["id", "provider"]).where("seq", "in", ofKeys).orderBy("seq"),
      );
    },
    begun: async (goesOn) => {
      const begun = build
        .selectFrom("batches")
        .select(["id", "status", "provider", liveOwner(build).as("owner")])
        .select((eb) =>
          eb(eb("successCount", "+", eb.ref("failCount")), ">=", eb.ref("itemCount")).as("isMade"),
        )
        .where("status", "in", [...BEGUN])
        .where("goesOn", "=", goesOn)
        .orderBy("seq");
      return (await all(begun)).map((batch) => ({ ...batch, isMade: Boolean(batch.isMade) }));
    },
    stopNamed: () =>
      run(build.updateTable("batches").set({ goesOn: "no" }).where("goesOn", "=", "while-named")),
    setGoesOn: (id, goesOn) =>
      run(
        build
          .updateTable("batches")
          .set({ goesOn })
          .where("id", "=", id)
          .where("cancelAskedAtMs", "is", null),
      ),
    cancelsAsked: () =>
      all(
        build
          .selectFrom("batches")
          .select("id")
          .where("status", "in", UNFINISHED_BATCH_STATUSES)
          .where("cancelAskedAtMs", "is not", null)
          .orderBy("seq"),
      ),
    endWaits: async () => {
      const waiting = build.updateTable("batches").where("waitingSinceMs", "is not", null);
      await run(waiting.set({ waitingSinceMs: null }).where("status", "in", [...BEGUN]));
    },
    becomeOwner: async (id, workerId) => ({
      isOurs: (await changes(BECOME_OWNER(build, { id, workerId }))) === 1,
    }),
    setOwner: (id, workerId) =>
      run(build.updateTable("batches").set({ owner: workerId }).where("id", "=", id)),
    ownerOf: async (id) => (await first(OWNER_OF(build, { id })))?.owner ?? null,
    openBefore: async ({ id, provider, apiKeyId, goesOn }, limit) => {
      const own = build.selectFrom("batches").select("seq").where("id", "=", id);
      const before = build
        .selectFrom("batches")
        .select("seq")
        .where("apiKeyId", "=", apiKeyId)
        .where("status", "in", ["queued", "running"])
        .where("provider", "=", provider)
        .where("goesOn", "=", goesOn)
        .where("seq", "<", own)
        .limit(limit);
      return (await all(before)).length;
    },
    unmadeByOthers: async (providers, goesOn) => {
      const unmade = batches().where("status", "in", ["queued", "running"]).where("goesOn", "=", goesOn);
      return all(unmade.where("provider", "not in", [...providers]).orderBy("seq"));
    },
    endedSince: async (ms, statuses) => {
      const ended = build
        .selectFrom("batches")
        .select("id")
        .where("status", "in", [...statuses]);
      return all(ended.where("endedAtMs", ">", ms).orderBy("seq"));
    },
    pendingItemCount: async () => {
      const pending = sql<number | null>`sum(item_count - success_count - fail_count)`;
      const unfinished = build.selectFrom("batches").where("status", "in", UNFINISHED_BATCH_STATUSES);
      const query = unfinished.select(pending.as("count"));
      return (await first(query))?.count ?? 0;
    },
    unfinishedByStatus: async () => {
      const counts = build
        .selectFrom("batches")
        .where("status", "in", UNFINISHED_BATCH_STATUSES)
        .select(["status", (eb) => eb.fn.countAll<number>().as("count")])
        .groupBy("status");
      return Object.fromEntries((await all(counts)).map(({ status, count }) => [status, count]));
    },
    changeStatus: async (id, from, to) => {
      return { isChanged: (await changes(CHANGE_STATUS(build, { id, from, to }))) === 1 };
    },
    update: (id, change) =>
      run(build.updateTable("batches").set(columnsOf("batches", change)).where("id", "=", id)),
    addCounts: async (...changes) => {
      if (dialect === "sqlite") for (const change of changes) await run(ADD_COUNTS(build, change));
      else {
        const of = (name: keyof CountChange) => arrayOf(changes.map((change) => change[name]));
        await run(ADD_ALL_COUNTS(build, { id: of("id"), success: of("success"), fail: of("fail") }));
      }
    },
    appendEvent: (event) => run(APPEND_EVENT(build, event)),
    events: (id) =>
      all(
        build
          .selectFrom("batch_events")
          .select(["batchId", "from", "to", "atMs"])
          .where("batchId", "=", id)
          .orderBy("seq"),
      ),
    all: () => all(batches().orderBy("seq")),
  };
}
