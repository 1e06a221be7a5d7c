import { randomBytes } from "node:crypto";
import type { PoolClient, QueryResult, QueryResultRow } from "pg";

/*
 * A lost answer to a COMMIT: another connection has to find out whether it happened. `pg_xact_status` cannot say it: after a
 * crash, the server gives ids out again whose transactions left nothing behind, and then it speaks of another
 * transaction. So each connection has a row that counts its transactions, as a part of them.
 */

/** A transaction among those of its connection. */
export interface CommitMark {
  connection: string;
  count: number;
}

/** Any number that no other program uses for a lock in the same database. */
const LOCK = 5_104_391_288;

/** Makes the table when there is none. Connections that were not used for a day have nothing to ask any more. */
export const PREPARE_MARKS = `BEGIN; SELECT pg_advisory_xact_lock(${LOCK});
CREATE TABLE IF NOT EXISTS commits (
  connection text PRIMARY KEY, count bigint NOT NULL, used_at timestamptz NOT NULL DEFAULT now());
DELETE FROM commits WHERE used_at < now() - interval '1 day'; COMMIT`;

const connections = new WeakMap<PoolClient, string>();

/** Returns the statement that marks a transaction, as its first one, and returns the count. */
export function markStatement(client: PoolClient): { connection: string; statement: string } {
  const connection = connections.get(client) ?? randomBytes(12).toString("hex");
  connections.set(client, connection);
  const statement = `INSERT INTO commits (connection, count) VALUES ('${connection}', 1)
ON CONFLICT (connection) DO UPDATE SET count = commits.count + 1, used_at = now() RETURNING count`;
  return { connection, statement };
}

/**
 * Asks for the count of a connection that is lost. It waits until the last transaction of that connection has ended, even
 * one that would insert the row, and rejects when that takes longer than a second.
 */
export async function askForCount(client: PoolClient, { connection }: CommitMark): Promise<number> {
  const answer =
    await client.query(`BEGIN; SET LOCAL lock_timeout = '1s'; INSERT INTO commits (connection, count)
VALUES ('${connection}', 0) ON CONFLICT (connection) DO UPDATE SET used_at = now() RETURNING count; ROLLBACK`);
  return resultsOf<{ count: number }>(answer).at(-2)?.rows[0]?.count ?? 0;
}

/** Returns the results of a text of several statements, one for each: the types of `pg` know only a single one. */
export function resultsOf<Row extends QueryResultRow>(answer: QueryResult): QueryResult<Row>[] {
  return answer as unknown as QueryResult<Row>[];
}
