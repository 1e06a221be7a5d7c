import {
  type Compilable,
  type CompiledQuery,
  type Expression,
  type Kysely,
  type RawBuilder,
  sql,
} from "kysely";
import type { Clock } from "../../kernel/clock.ts";
import type { Database } from "../tables.ts";

/**
 * Runs queries built with Kysely on one connection. Rows have the names of records, and values that are no numbers or
 * texts are JSON in the database.
 */
export interface SqlSession {
  /** Builds queries for this dialect; never executes them itself. */
  readonly build: Kysely<Database>;
  readonly dialect: "sqlite" | "postgres";
  all<Row>(query: Compilable<Row>): Promise<Row[]>;
  /** The first row, or null. */
  first<Row>(query: Compilable<Row>): Promise<Row | null>;
  run(query: Compilable<unknown>): Promise<void>;
  /** Runs a query, and returns how many rows it changed. */
  changes(query: Compilable<unknown>): Promise<number>;
  /**
   * Runs the query once with each list of parameters in place of its own. To compile a query takes several times as long
   * as to run it.
   */
  runEach(query: Compilable<unknown>, parameters: readonly (readonly unknown[])[]): Promise<void>;
}

/** Makes a query of hand-written SQL. */
export function written<Row>({ build }: SqlSession, text: RawBuilder<Row>): Compilable<Row> {
  return { compile: () => text.compile(build) };
}

/** Stands in a prepared query for the value that each run brings. */
class Placeholder {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** The values of a prepared query, as it is built. */
export type Values<Given> = { readonly [Name in keyof Given]: Expression<Given[Name]> };

const PLACEHOLDERS = new Proxy({}, { get: (_, name) => sql.val(new Placeholder(String(name))) });

/**
 * Makes a query that is built and compiled once for each dialect: that takes several times as long as to run it. All
 * that differs between two runs must come through the values; an `in` list has no fixed length, and cannot. The
 * returned function fills the values in; `build` is that of the session that runs the query.
 */
export function prepared<Given extends object, Row>(
  make: (build: Kysely<Database>, values: Values<Given>) => Compilable<Row>,
): (build: Kysely<Database>, given: Given) => Compilable<Row> {
  const compiled = new WeakMap<Kysely<Database>, CompiledQuery<Row>>();
  return (build, given) => ({
    compile: () => {
      let query = compiled.get(build);
      if (query === undefined) {
        query = make(build, PLACEHOLDERS as Values<Given>).compile();
        compiled.set(build, query);
      }
      const parameters = query.parameters.map((value) =>
        value instanceof Placeholder ? given[value.name as keyof Given] : value,
      );
      return { ...query, parameters };
    },
  });
}

/** The columns that hold JSON, and those that hold true as 1. Such a name means the same in every table. */
const JSON_COLUMNS = [
  "lostCalls",
  "metadata",
  "price",
  "error",
  "waiting",
  "input",
  "notes",
  "usage",
  "facts",
  "parts",
  "pictures",
  "providers",
  "endedNames",
  "answer",
  "verbatim",
  "needs",
  "tasks",
];
const YES_COLUMNS = ["isAdditive", "isPlay", "isPaused", "hasReferences", "isStopTold"];

let lastOptions = { text: "{}", options: Object.freeze({}) };

/** Parses the options of an item. Most items of a batch have the same, so the last ones are kept: a page parses them once. */
function parseOptions(text: string): object {
  if (text !== lastOptions.text) lastOptions = { text, options: Object.freeze(JSON.parse(text)) };
  return lastOptions.options;
}

const READERS = new Map<string, (value: never) => unknown>([
  ["options", parseOptions],
  ...JSON_COLUMNS.map((name) => [name, JSON.parse] as const),
  ...YES_COLUMNS.map((name) => [name, (value: number) => value === 1] as const),
]);

/** Returns a function that makes a record of the values of a row with these columns. */
export function rowReader(
  columns: readonly string[],
): (values: readonly unknown[]) => Record<string, unknown> {
  const names = columns.map(fieldOf);
  const readers = names.map((name) => READERS.get(name));
  // Copies of one object share its shape, which makes reading them fast.
  const empty: Record<string, unknown> = Object.fromEntries(names.map((name) => [name, null]));
  return (values) => {
    const row = { ...empty };
    for (let at = 0; at < names.length; at++) {
      const [value, read] = [values[at], readers[at]];
      row[names[at] as string] = read === undefined || value === null ? value : read(value as never);
    }
    return row;
  };
}

/** Returns the name that a column has in records. */
export function fieldOf(column: string): string {
  return column.replace(/_([a-z0-9])/g, (_, first) => first.toUpperCase());
}

const COLUMNS = new Map<string, string>();

/** Returns the name of a column in the database. */
export function columnOf(name: string): string {
  let column = COLUMNS.get(name);
  if (column === undefined) {
    column = name.replace(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`);
    COLUMNS.set(name, column);
  }
  return column;
}

/** Returns a value as columns hold it. */
export function columnValue(value: unknown): unknown {
  if (typeof value === "boolean") return Number(value);
  return typeof value === "object" && value !== null ? JSON.stringify(value) : value;
}

/** What an operator should know of a database that can be used all the same. */
interface Warning {
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
  /** Problems that were found when the database was opened. */
  readonly warnings: readonly Warning[];
  close(): Promise<void>;
}
