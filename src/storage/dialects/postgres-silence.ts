import { setTimeout as pause } from "node:timers/promises";
import pg, { type Client, type ClientConfig, type PoolClient, type QueryConfig, type QueryResult } from "pg";
import { PostgresClient } from "./postgres-connection.ts";

/*
 * A server that goes away without a word, because its machine loses power or the network drops everything, ends no
 * connection: the system sends again for a quarter of an hour. So other connections ask whether the server is still at
 * work on a statement that it has not answered.
 */

/** How long a statement may take before the server is asked about it, and the pause before it is asked again. */
const ASK_AFTER_MS = 2000;
const ASK_AGAIN_MS = 1000;
/** How long the server may take to answer. */
const PATIENCE_MS = 2000;
/** A statement is lost if the server does not know it this many times in a row: the first time it may be on its way. */
const MISSES = 2;
/** The server itself ends a statement of a transaction after a minute. */
const LONGEST_MS = 65_000;
/** How long a server has to take note of the end of a connection. */
const FAREWELL_MS = 1000;

/**
 * Asks for the process ids of the backends that are at work, for all who ask at the same time at once. None when the server
 * cannot be reached; null when it cannot be said.
 */
export type AskForWork = () => Promise<ReadonlySet<number> | null>;

/** Asks on a new connection each time. */
export function workAsker(connection: ClientConfig): AskForWork {
  let asking: ReturnType<AskForWork> | null = null;
  return () => {
    asking ??= askForWork(connection).finally(() => {
      asking = null;
    });
    return asking;
  };
}

const AT_WORK = `SELECT pg_backend_pid() AS own, ARRAY(
SELECT pid FROM pg_stat_activity WHERE coalesce(state, '') NOT LIKE 'idle%') AS pids`;

async function askForWork(connection: ClientConfig): ReturnType<AskForWork> {
  const client = new PostgresClient({ ...connection, connectionTimeoutMillis: PATIENCE_MS });
  client.on("error", () => {});
  const timer = setTimeout(() => client.connection.stream.destroy(), PATIENCE_MS);
  try {
    await client.connect();
    const { rows } = await client.query<{ own: number; pids: number[] }>(AT_WORK);
    // Behind a pooler the ids that a client is told are those of the pooler.
    return rows[0]?.own === backendOf(client) ? new Set(rows[0].pids) : null;
  } catch (error) {
    // A server that refuses is running.
    return error instanceof pg.DatabaseError ? null : new Set();
  } finally {
    clearTimeout(timer);
    client.end().catch(() => {});
    destroySoon([client]);
  }
}

/** Ends a connection when the server does not know of a statement that was sent on it: the statement then rejects. */
export function endWhenSilent(client: PoolClient, ask: AskForWork): void {
  const query = client.query.bind(client) as (statement: QueryConfig) => Promise<QueryResult>;
  const watched = async (statement: QueryConfig) => {
    const answered = new AbortController();
    const timer = setTimeout(() => endIfUnknown(client, ask, answered.signal), ASK_AFTER_MS);
    try {
      return await query(statement);
    } finally {
      clearTimeout(timer);
      answered.abort();
    }
  };
  client.query = watched as typeof client.query;
}

async function endIfUnknown(client: Client, ask: AskForWork, answered: AbortSignal): Promise<void> {
  const startMs = performance.now() - ASK_AFTER_MS;
  for (let misses = 0; ; await pause(ASK_AGAIN_MS)) {
    if (answered.aborted) return;
    const pids = await ask().catch(() => null);
    if (answered.aborted) return;
    misses = pids === null || pids.has(backendOf(client)) ? 0 : misses + 1;
    if (misses === MISSES || performance.now() - startMs > LONGEST_MS) break;
  }
  client.connection.stream.destroy();
}

/** Closes connections that have said farewell, also when the server does not hear it. */
export function destroySoon(clients: Iterable<Client>): void {
  const destroy = () => {
    for (const client of clients) client.connection.stream.destroy();
  };
  setTimeout(destroy, FAREWELL_MS).unref();
}

/** Returns the process id that the client was told. Behind a pooler it is none of the server's. The types do not know it. */
export function backendOf(client: Client): number {
  return (client as unknown as { processID: number }).processID;
}
