import { type Compilable, type CompiledQuery, type Expression, type Kysely, sql } from "kysely";
import type { Database } from "../schema.ts";

/** Stands in a kept query for the value that each run brings. */
class Place {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** The values of a kept query, as it is built. */
export type Values<Given> = { readonly [Name in keyof Given]: Expression<Given[Name]> };

/** Returns a query whose values are filled in. `build` is that of the session that runs it. */
type KeptQuery<Given, Row> = (build: Kysely<Database>, given: Given) => Compilable<Row>;

const PLACES = new Proxy({}, { get: (_, name) => sql.val(new Place(String(name))) });

/**
 * Makes a query that is built and compiled once for each dialect: that takes several times as long as to run it. All
 * that differs between two runs must come through the values. A list in them has no fixed length, and cannot.
 */
export function kept<Given extends object, Row>(
  make: (build: Kysely<Database>, values: Values<Given>) => Compilable<Row>,
): KeptQuery<Given, Row> {
  const compiled = new WeakMap<Kysely<Database>, CompiledQuery<Row>>();
  return (build, given) => ({
    compile: () => {
      let query = compiled.get(build);
      if (query === undefined) {
        query = make(build, PLACES as Values<Given>).compile();
        compiled.set(build, query);
      }
      const parameters = query.parameters.map((value) =>
        value instanceof Place ? given[value.name as keyof Given] : value,
      );
      return { ...query, parameters };
    },
  });
}
