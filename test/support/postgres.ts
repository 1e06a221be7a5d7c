import { once } from "node:events";
import { createConnection } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import pg from "pg";
import { onTestFinished } from "vitest";
import type { Stores } from "../../src/domain/ports/stores.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { openPostgres } from "../../src/storage/dialects/postgres.ts";
import type { SqlDatabase } from "../../src/storage/dialects/sql-session.ts";
import { sqlStores } from "../../src/storage/stores.ts";
import { SUITE_ROOT } from "./global-setup.ts";
import { LENDER_SOCKET, TEMPLATE } from "./postgres-lender.ts";
import { postgresBin } from "./postgres-server.ts";

/** Whether the tests that need PostgreSQL can run here. Without it they are skipped. */
export const hasPostgres = postgresBin() !== null;

/** Makes a database for one test, with all tables. Returns its URL. */
export function newDatabase(): Promise<string> {
  return databaseLike(TEMPLATE);
}

/** The same without any table. */
export function emptyDatabase(): Promise<string> {
  return databaseLike("template0");
}

async function databaseLike(template: string): Promise<string> {
  const server = await serverUrl();
  const name = `t${randomIds.leaseToken().slice(0, 16)}`;
  await asAdministrator(server, `create database ${name} template ${template}`);
  onTestFinished(() => asAdministrator(server, `drop database ${name} with (force)`));
  return server + name;
}

/** A database for one test, open. */
export async function openTestPostgres(
  clock: Clock = systemClock,
): Promise<{ url: string; database: SqlDatabase; stores: Stores }> {
  const url = await newDatabase();
  const database = await openPostgres({ url }, clock);
  onTestFinished(() => database.close());
  return { url, database, stores: sqlStores(database) };
}

async function serverUrl(): Promise<string> {
  const socket = createConnection(join(process.env[SUITE_ROOT] ?? "", LENDER_SOCKET));
  const [url] = await Promise.all([text(socket), once(socket, "close")]);
  if (url === "") throw new Error("PostgreSQL could not be started");
  return url;
}

async function asAdministrator(server: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: `${server}postgres` });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
