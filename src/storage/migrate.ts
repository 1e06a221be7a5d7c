import { sql } from "kysely";
import { ImgbatchError } from "../contract/errors.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { type SqlDatabase, type SqlSession, written } from "./dialects/sql-session.ts";
import { foundation } from "./migrations/001-010/001-foundation.ts";
import { waitingAndOpenJobs } from "./migrations/001-010/002-waiting-and-open-jobs.ts";
import { realtime } from "./migrations/001-010/003-realtime.ts";
import { retentionTime } from "./migrations/001-010/004-retention-time.ts";
import { modelVersion } from "./migrations/001-010/005-model-version.ts";
import { upstreams } from "./migrations/001-010/006-upstreams.ts";
import { files } from "./migrations/001-010/007-files.ts";
import { lines } from "./migrations/001-010/008-lines.ts";
import { jobs } from "./migrations/001-010/009-jobs.ts";
import { keyedRequests } from "./migrations/001-010/010-keyed-requests.ts";
import { stopAsked } from "./migrations/011-020/011-stop-asked.ts";
import { itemPrices } from "./migrations/011-020/012-item-prices.ts";
import { linkedImages } from "./migrations/011-020/013-linked-images.ts";
import { downloads } from "./migrations/011-020/014-downloads.ts";
import { filePurposes } from "./migrations/011-020/015-file-purposes.ts";
import { workers } from "./migrations/011-020/016-workers.ts";
import { additiveSteps } from "./migrations/011-020/017-additive-steps.ts";
import { sharedApi } from "./migrations/011-020/018-shared-api.ts";
import { enabledKeys } from "./migrations/011-020/019-enabled-keys.ts";
import { batchCounts } from "./migrations/011-020/020-batch-counts.ts";
import { batchesByParent } from "./migrations/021-030/021-batches-by-parent.ts";
import { waiting } from "./migrations/021-030/022-waiting.ts";
import { keptRatios } from "./migrations/021-030/023-kept-ratios.ts";
import type { Migration } from "./migrations/migration.ts";

const MIGRATIONS: readonly Migration[] = [
  foundation,
  waitingAndOpenJobs,
  realtime,
  retentionTime,
  modelVersion,
  upstreams,
  files,
  lines,
  jobs,
  keyedRequests,
  stopAsked,
  itemPrices,
  linkedImages,
  downloads,
  filePurposes,
  workers,
  additiveSteps,
  sharedApi,
  enabledKeys,
  batchCounts,
  batchesByParent,
  waiting,
  keptRatios,
];

/** The step that adds the mark of additive steps. Those before it have none. */
const MARKS = additiveSteps.name;

/** Any number that no other program uses for a lock in the same database. */
const LOCK = 5_104_391_287;

/** A service that was seen within this time may be running. */
const RUNS_MS = 10_000;
/** By then each service that runs was seen again: it says every two seconds that it is there. */
const LOOK_AGAIN_MS = 2500;

/** A service that could not go on with another schema. */
interface OlderService {
  id: string;
  role: string;
  version: string;
  seen_at_ms: number;
}

/**
 * Brings the database to the schema of this version, in one transaction. A newer database is refused, unless all that
 * is newer in it is additive. A shared database with an older schema is refused while services use it that could not go
 * on with the new schema: they would fail in the middle of their work. Waits for up to ten seconds until it is known that
 * one was killed.
 */
export async function migrate(database: SqlDatabase, clock: Clock = systemClock): Promise<void> {
  let before: ReadonlyMap<string, number> | null = null;
  for (;;) {
    const services = await database.transaction((session) => migrateUnlessUsed(database, session));
    if (services.length === 0) return;
    const running = services.filter(({ id, seen_at_ms }) => before !== null && before.get(id) !== seen_at_ms);
    if (running.length > 0) throw usedByOlder(running);
    before = new Map(services.map(({ id, seen_at_ms }) => [id, seen_at_ms]));
    await clock.sleep(LOOK_AGAIN_MS);
  }
}

/** Changes nothing while services that could not go on may be running, and returns these. */
async function migrateUnlessUsed(database: SqlDatabase, session: SqlSession): Promise<OlderService[]> {
  const { build } = session;
  if (session.dialect === "postgres") await takeMigrationLock(session);
  const table = build.schema.createTable("schema_migrations").ifNotExists();
  await session.run(table.addColumn("name", "text", (c) => c.primaryKey()));
  const rows = await session.all(build.selectFrom("schema_migrations").select("name"));
  const done = new Set(rows.map((row) => row.name));
  const unknown = new Set([...done].filter((name) => !MIGRATIONS.some((m) => m.name === name)));
  if (done.has(MARKS)) {
    const additive = build.selectFrom("schema_migrations").select("name").where("is_additive", "=", 1);
    for (const { name } of await session.all(additive)) unknown.delete(name);
  }
  if (unknown.size > 0) {
    const message = `The database was written by a newer version (${[...unknown].join(", ")}).`;
    throw new ImgbatchError("INVALID_CONFIG", message);
  }
  const missing = MIGRATIONS.filter((m) => !done.has(m.name));
  // One process alone has the file of SQLite, and may find the record of an earlier one there.
  const isShared = session.dialect === "postgres" && done.has(workers.name);
  if (isShared && missing.some((m) => !m.isAdditive)) {
    const sinceMs = (await database.clockMs(session)) - RUNS_MS;
    const facts = build.selectFrom("workers").select(["id", "role", "version", "seen_at_ms"]);
    const services = await session.all(facts.where("seen_at_ms", ">=", sinceMs));
    if (services.length > 0) return services;
  }
  for (const { name, isAdditive, statements } of missing) {
    for (const statement of statements(session)) await session.run(statement);
    const mark = isAdditive ? { is_additive: 1 } : {};
    await session.run(build.insertInto("schema_migrations").values({ name, ...mark }));
  }
  return [];
}

function usedByOlder(services: readonly OlderService[]): ImgbatchError {
  const names = services.map(({ role, version }) => `${role} ${version}`).sort();
  const counted = [...new Set(names)].map(
    (name) => `${names.filter((each) => each === name).length} ${name}`,
  );
  const message = `The database is used by services of an older version (${counted.join(", ")}), which could not go on with the schema of this one.`;
  const advice = "use their version, or stop all of them first: those of the role `worker`, then the others";
  return new ImgbatchError("INVALID_CONFIG", message, { advice });
}

/** Processes that start at the same time migrate one after the other. A change of a large table may take long. */
async function takeMigrationLock(session: SqlSession): Promise<void> {
  await session.run(written(session, sql`set local lock_timeout = 0`));
  await session.run(written(session, sql`set local statement_timeout = 0`));
  await session.run(written(session, sql`select pg_advisory_xact_lock(${LOCK})`));
}
