import type { Compilable } from "kysely";
import type { SqlSession } from "../dialects/sql-session.ts";

/** A step of the schema, as statements. A step that was released is never edited: a new one follows it. */
export interface Migration {
  name: string;
  /**
   * A program that does not know this step works with it, so an older version can go on beside this one. Default: false,
   * such a program refuses to start.
   */
  isAdditive?: boolean;
  statements(session: SqlSession): Compilable<unknown>[];
}
