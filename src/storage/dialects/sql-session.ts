import type { Compilable, Kysely, RawBuilder } from "kysely";
import type { Clock } from "../../kernel/clock.ts";
import type { Database } from "../schema.ts";

/** Runs queries built with Kysely on one connection. Statements are prepared once and kept. */
export interface SqlSession {
  /** Builds queries for this dialect; never executes them itself. */
  readonly build: Kysely<Database>;
  readonly dialect: "sqlite" | "postgres";
  all<Row>(query: Compilable<Row>): Promise<Row[]>;
  /** The first row, or null. */
  first<Row>(query: Compilable<Row>): Promise<Row | null>;
  /** Returns how many rows changed. */
  run(query: Compilable<unknown>): Promise<number>;
  /**
   * Runs the query once with each list of parameters in place of its own. To compile a query takes several times as long
   * as to run it.
   */
  runEach(query: Compilable<unknown>, parameters: readonly (readonly unknown[])[]): Promise<void>;
}

/** Makes a query of hand-written SQL. */
export function written<Row>({ build }: SqlSession, sql: RawBuilder<Row>): Compilable<Row> {
  return { compile: () => sql.compile(build) };
}

/** What an operator should know of a database that can be used all the same. */
export interface Warning {
  message: string;
  advice: string;
}

/** A database of some dialect. */
export interface SqlDatabase {
  /** Reads what is committed. */
  readonly reader: SqlSession;
  /** See `Stores.write`. The session belongs to this transaction: after its end every query rejects. */
  transaction<T>(work: (session: SqlSession) => Promise<T>): Promise<T>;
  /** See `Stores.snapshot`. The session belongs to this snapshot: after its end every query rejects. */
  snapshot<T>(work: (session: SqlSession) => Promise<T>): Promise<T>;
  /** Shows the time of the database without asking for it: correct to less than the time of an answer. */
  readonly clock: Clock;
  /** Returns the time of the database, in ms since 1970: the same for all processes that use it. */
  clockMs(session: SqlSession): Promise<number>;
  /** Verifies the files of the database itself. Returns a line for each problem. */
  integrityProblems(): Promise<string[]>;
  /** Those of the time when it was opened. */
  readonly warnings: readonly Warning[];
  close(): Promise<void>;
}
