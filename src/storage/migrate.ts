import { randomBytes } from "node:crypto";
import { sql } from "kysely";
import { ImgbatchError } from "../contract/errors.ts";
import { type SqlDatabase, type SqlSession, written } from "./dialects/sql-session.ts";
import { foundation } from "./foundation.ts";

/** The row of `schema_migrations` for the tables of `foundation`. */
const FOUNDATION = "0.1.0-2";
/** The first steps of programs before the release of 0.1.0. */
const BEFORE = ["001-foundation", "foundation", "0.1.0"];

/** Fixed id of the advisory lock, unlike that of any other program in the same database. */
const LOCK = 5_104_391_287;

/**
 * Makes all tables in an empty database, in one transaction. Throws `INVALID_CONFIG` for a database of a newer version,
 * unless all that is newer in it is additive, and `EARLIER_VERSION` for one from before 0.1.0: its batches must not be
 * taken for unknown, and paid again.
 */
export function migrate(database: SqlDatabase): Promise<void> {
  return database.transaction(async (session) => {
    // Processes that start at the same time make the tables one after the other.
    if (session.dialect === "postgres")
      await session.run(written(session, sql`select pg_advisory_xact_lock(${LOCK})`));
    const steps = await stepsOf(session);
    if (steps === null) return makeTables(session);
    if (steps.some(({ name }) => BEFORE.includes(name))) throw fromBefore();
    const unknown = steps.filter(({ name, isAdditive }) => name !== FOUNDATION && isAdditive !== true);
    if (unknown.length === 0) return;
    const names = unknown.map(({ name }) => name).join(", ");
    throw new ImgbatchError("INVALID_CONFIG", `The database was written by a newer version (${names}).`);
  });
}

/** The steps that a database has. Null for a database without tables of ours. */
async function stepsOf(session: SqlSession): Promise<{ name: string; isAdditive?: boolean }[] | null> {
  const tables =
    session.dialect === "postgres"
      ? sql<object>`select 1 from pg_tables where schemaname = current_schema() and tablename = 'schema_migrations'`
      : sql<object>`select 1 from sqlite_master where type = 'table' and name = 'schema_migrations'`;
  if ((await session.first(written(session, tables))) === null) return null;
  return session.all(session.build.selectFrom("schema_migrations").selectAll());
}

async function makeTables(session: SqlSession): Promise<void> {
  for (const statement of foundation(session.dialect))
    await session.run(written(session, sql.raw(statement)));
  const { build } = session;
  await session.run(build.insertInto("schema_migrations").values({ name: FOUNDATION }));
  const id = randomBytes(6).toString("hex");
  await session.run(build.insertInto("database_identity").values({ id }));
}

function fromBefore(): ImgbatchError {
  const message = "The database was made by a version before 0.1.0, which this one cannot read.";
  const advice =
    "finish its batches with the version that made it; then name another data directory (--data) or database, or move this one away";
  return new ImgbatchError("EARLIER_VERSION", message, { advice });
}
