import { expect, it } from "vitest";
import { systemClock } from "../../../src/kernel/clock.ts";
import { openDatabase } from "../../../src/service/storage/open-storage.ts";
import { hasPostgres, newDatabase } from "../../support/postgres.ts";
import { tempDir } from "../../support/temp-dir.ts";

it.skipIf(!hasPostgres)("[PG-6] the advice for a database that is not there is to create it", async () => {
  const url = new URL(await newDatabase());
  url.pathname = "/nowhere";
  const place = { kind: "postgres", url: url.href, name: "postgres://db/nowhere" } as const;
  await expect(openDatabase(place, await tempDir(), systemClock)).rejects.toMatchObject({
    code: "STORAGE_FAILED",
    advice: expect.stringContaining("CREATE DATABASE"),
  });
});
