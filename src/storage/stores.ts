import { sql } from "kysely";
import type { Repositories, Stores, Transaction } from "../domain/ports/stores.ts";
import { arrayOf } from "./dialects/postgres-session.ts";
import { prepared, type SqlDatabase, type SqlSession, type Values } from "./dialects/sql-session.ts";
import { accountRepositories } from "./repositories/accounts.ts";
import { auditRepository } from "./repositories/audit.ts";
import { batchRepository } from "./repositories/batches.ts";
import { fileRepositories } from "./repositories/files.ts";
import { itemRepository } from "./repositories/items.ts";
import { providerRepositories } from "./repositories/providers.ts";
import { realtimeRepositories } from "./repositories/realtime.ts";
import { workerRepositories } from "./repositories/workers.ts";

/** The stores of the domain over a database whose schema is up to date. */
export function sqlStores(database: SqlDatabase): Stores {
  return {
    read: repositoriesOf(database.reader, database),
    snapshot: (work) => database.snapshot((session) => work(repositoriesOf(session, database))),
    write: (work) => database.transaction((session) => work(transactionOf(session, database))),
  };
}

/** In the order of their ids: two transactions that lock several in different orders could deadlock. */
const locks = (table: "api_keys" | "batches" | "accounts") =>
  prepared((build, { ids }: Values<{ ids: string[] }>) =>
    build
      .selectFrom(table)
      .select("id")
      .where("id", "=", sql<string>`any(${ids})`)
      .orderBy("id")
      .forNoKeyUpdate(),
  );

const LOCKS = { key: locks("api_keys"), batch: locks("batches"), account: locks("accounts") };

function transactionOf(session: SqlSession, database: SqlDatabase): Transaction {
  const repositories = repositoriesOf(session, database);
  const lock: Transaction["lock"] = async (row, ...ids) => {
    // A transaction of SQLite is the only one that writes.
    if (session.dialect === "postgres") await session.all(LOCKS[row](session.build, { ids: arrayOf(ids) }));
  };
  const locked = async (id: string) => {
    await lock("batch", id);
    return repositories.batches.byId(id);
  };
  return { ...repositories, lock, batches: { ...repositories.batches, locked } };
}

function repositoriesOf(session: SqlSession, { clockMs }: Pick<SqlDatabase, "clockMs">): Repositories {
  return {
    ...accountRepositories(session),
    batches: batchRepository(session),
    items: itemRepository(session),
    ...fileRepositories(session),
    ...providerRepositories(session),
    ...realtimeRepositories(session),
    audit: auditRepository(session),
    ...workerRepositories(session, () => clockMs(session)),
    touch: () =>
      session.run(session.build.updateTable("database_identity").set((eb) => ({ id: eb.ref("id") }))),
  };
}
