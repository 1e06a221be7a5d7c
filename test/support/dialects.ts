import { describe } from "vitest";
import type { Stores } from "../../src/domain/ports/stores.ts";
import { hasPostgres, openTestPostgres } from "./postgres.ts";
import { openStores } from "./stores.ts";

/** Runs the same tests on SQLite and on PostgreSQL, each with stores of its own. */
export function onEachDialect(name: string, tests: (open: () => Promise<Stores>) => void): void {
  describe(`${name} on SQLite`, () => tests(openStores));
  describe.skipIf(!hasPostgres)(`${name} on PostgreSQL`, () =>
    tests(async () => (await openTestPostgres()).stores),
  );
}
