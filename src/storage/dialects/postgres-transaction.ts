import type { PoolClient, QueryArrayResult, QueryResult } from "pg";
import { type Ask, postgresSession } from "./postgres-session.ts";
import type { SqlSession } from "./sql-session.ts";

/**
 * The times after which the server itself ends what hangs, so that its locks come free. Between two statements a
 * transaction waits for nothing but this process: one that is stopped, or gone without a word, holds up others no longer
 * than this.
 */
const LIMITS =
  "SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '60s'";

/** Asks for the time of the database as `ms`, since 1970. */
export const CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms";

/** Begins a transaction that sees what others have committed. Returns the time of the database. */
export async function beginWriting(client: PoolClient): Promise<{ ms: number }> {
  const answer = await client.query(`BEGIN ISOLATION LEVEL READ COMMITTED; ${LIMITS}; ${CLOCK}`);
  // The types of `pg` know only the answer to a single statement.
  const last = (answer as unknown as QueryResult<{ ms: number }>[]).at(-1)?.rows[0];
  if (last === undefined) throw new Error("the database has not said its time");
  return last;
}

/** Begins a transaction that sees one moment. */
export async function beginReading(client: PoolClient): Promise<void> {
  await client.query(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ${LIMITS}`);
}

/**
 * Runs work in the open transaction of a connection. Rejects when it waits for anything but the database: the
 * transaction would hold its locks meanwhile, and with all connections in use, it would wait for ever for one more.
 */
export function runInTransaction<T>(
  client: PoolClient,
  work: (session: SqlSession) => Promise<T>,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    let state: "working" | "asking" | "ended" = "working";
    let turned: NodeJS.Immediate | undefined;
    let failure: unknown = null;
    const end = (settle: () => void) => {
      if (state === "ended") return;
      state = "ended";
      clearImmediate(turned);
      settle();
    };
    const watch = () => {
      state = "working";
      turned = setImmediate(() => {
        const message = "a transaction waited for something other than its database";
        end(() => reject(new Error(message)));
      });
    };
    const ask: Ask = async (query) => {
      if (state === "ended") throw new Error("a query came after the end of its transaction");
      if (state === "asking") throw new Error("two queries of a transaction came at the same time");
      clearImmediate(turned);
      state = "asking";
      try {
        return await client.query(query);
      } catch (error) {
        failure ??= error;
        throw error;
      } finally {
        watch();
      }
    };
    watch();
    work(postgresSession(ask)).then(
      // After a query that failed, the server takes no other, and a commit undoes everything.
      (result) => end(() => (failure === null ? resolve(result) : reject(failure))),
      (error) => end(() => reject(error)),
    );
  });
}

/** Throws when the server has undone the transaction instead. */
export async function commit(client: PoolClient): Promise<void> {
  const { command } = (await client.query("COMMIT")) as QueryArrayResult;
  if (command !== "COMMIT") throw new Error("the database has undone a transaction instead of its commit");
}
