import type { Compilable, Kysely } from "kysely";
import type { Database } from "../schema.ts";

/** Runs queries built with Kysely, synchronously, on one connection. Statements are prepared once and kept. */
export interface SqlSession {
  /** Builds queries for this dialect; never executes them itself. */
  readonly build: Kysely<Database>;
  all<Row>(query: Compilable<Row>): Promise<Row[]>;
  /** The first row, or null. */
  first<Row>(query: Compilable<Row>): Promise<Row | null>;
  /** Answers how many rows changed. */
  run(query: Compilable<unknown>): Promise<number>;
}

/** A database of some dialect: one connection that writes, one that only reads. */
export interface SqlDatabase {
  readonly reader: SqlSession;
  readonly writer: SqlSession;
  /** See `Stores.write`: the work gets the writing session inside a transaction. */
  transaction<T>(work: (session: SqlSession) => Promise<T>): Promise<T>;
  /** See `Stores.snapshot`: reads of the reading session during the work see one moment. */
  snapshot<T>(work: () => Promise<T>): Promise<T>;
  /** Verifies the files of the database itself; the problems found, one line each. */
  integrityProblems(): string[];
  close(): void;
}
