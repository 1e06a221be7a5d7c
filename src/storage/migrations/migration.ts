import type { Compilable } from "kysely";
import type { SqlSession } from "../dialects/sql-session.ts";

/** A step of the schema, as statements. A step that was released is never edited: a new one follows it. */
export interface Migration {
  name: string;
  statements(session: SqlSession): Compilable<unknown>[];
}
