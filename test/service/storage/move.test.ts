import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type BlobsPlace, LOCAL_STORAGE, type StoragePlaces } from "../../../src/config/storage-places.ts";
import { DATA_FILES } from "../../../src/contract/data-directory.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { openAdmin } from "../../../src/service/admin.ts";
import { moveStorage, openStorage } from "../../../src/service/storage/open-storage.ts";
import { sumTables, tablesOf } from "../../../src/storage/copy.ts";
import { openSqlite } from "../../../src/storage/dialects/sqlite.ts";
import { FakeProvider } from "../../support/fake-provider.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { hasPostgres, newDatabase } from "../../support/postgres.ts";
import { fakeBucket } from "../../support/s3/buckets.ts";
import { startTestService } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { checkOf, usedDirectory } from "../../support/used-directory.ts";

/** A bucket, and an empty database unless the old one stays. */
async function places(
  withDatabase = true,
): Promise<StoragePlaces & { fake: Awaited<ReturnType<typeof fakeBucket>>["fake"] }> {
  const { fake, settings } = await fakeBucket({ clock: new InstantClock() });
  const blobs = { kind: "s3", name: "s3://images/imgbatch", ...settings } as BlobsPlace;
  const database = withDatabase
    ? { kind: "postgres" as const, name: "postgres://db.example/imgbatch", url: await newDatabase() }
    : { kind: "sqlite" as const };
  return { database, blobs, fake };
}

/** Sums of all tables of a directory. */
async function sumsOf(directory: string) {
  const database = openSqlite(join(directory, DATA_FILES.database), systemClock);
  try {
    return await sumTables(database, await tablesOf(database));
  } finally {
    await database.close();
  }
}

describe.skipIf(!hasPostgres)("a move to PostgreSQL and S3", () => {
  it("[MOVE-1] copies everything, leaves the old data, and the new one passes every check", async () => {
    const { data, id } = await usedDirectory();
    const before = { sums: await sumsOf(data), check: await checkOf(data) };
    const to = await places();
    const report = await moveStorage({ directory: data, to });
    expect(report).toMatchObject({
      database: "postgres://db.example/imgbatch",
      blobs: "s3://images/imgbatch",
      problems: [],
      files: 5,
    });
    expect(report.rows).toBe(before.sums.reduce((sum, { rows }) => sum + rows, 0));
    expect(await sumsOf(data)).toEqual(before.sums);
    expect(await checkOf(data, to)).toEqual(before.check);
    const { stores, close } = await openStorage(to, { directory: data });
    expect(await stores.read.batches.byId(id)).toMatchObject({ status: "completed", successCount: 5 });
    await close();
  });

  it("the old data starts no service and is not administered; the error names the new places", async () => {
    const { data } = await usedDirectory();
    const to = await places();
    await moveStorage({ directory: data, to });
    const refused = {
      code: "INVALID_CONFIG",
      message: expect.stringContaining(
        "was moved to postgres://db.example/imgbatch and s3://images/imgbatch",
      ),
    };
    await expect(startTestService({ data })).rejects.toMatchObject(refused);
    await expect(openAdmin({ directory: data })).rejects.toMatchObject(refused);
    await expect(moveStorage({ directory: data, to })).rejects.toMatchObject({ code: "FILE_EXISTS" });
    await rm(join(data, DATA_FILES.moved));
    await (await startTestService({ data })).close(0);
  });

  it("goes on after a failure at any request, and after an end between commit and mark", {
    timeout: 60_000,
  }, async () => {
    const { data } = await usedDirectory();
    const to = await places();
    for (const failing of [5, 7, 10, 12]) {
      let left = failing;
      to.fake.fail({ refuse: { status: 403, code: "AccessDenied" } }, { when: () => --left === 0 });
      await expect(moveStorage({ directory: data, to })).rejects.toThrow("object storage");
      await expect(startTestService({ data })).rejects.toMatchObject({
        code: "INVALID_CONFIG",
        message: expect.stringContaining("is being moved to"),
      });
    }
    const file = join(data, DATA_FILES.moved);
    for (const _ of ["after the failures", "after the commit"]) {
      expect(await moveStorage({ directory: data, to })).toMatchObject({ files: 5, problems: [] });
      expect(await checkOf(data, to)).toMatchObject({ images: 5, problems: [] });
      const moved = JSON.parse(await readFile(file, "utf8"));
      expect(moved.moved_at).toEqual(expect.any(Number));
      await writeFile(file, JSON.stringify({ ...moved, moved_at: null }));
    }
  });

  it("a move that has begun goes nowhere else, and into no database that was used meanwhile", async () => {
    const { data } = await usedDirectory();
    const to = await places();
    await moveStorage({ directory: data, to });
    const file = join(data, DATA_FILES.moved);
    const moved = JSON.parse(await readFile(file, "utf8"));
    await writeFile(file, JSON.stringify({ ...moved, moved_at: null }));
    const elsewhere = moveStorage({ directory: data, to: await places(false) });
    await expect(elsewhere).rejects.toMatchObject({ code: "FILE_EXISTS" });
    const admin = await openAdmin({ directory: await tempDir(), storage: to });
    await admin.topUp("default", 1);
    await admin.close();
    await expect(moveStorage({ directory: data, to })).rejects.toMatchObject({
      code: "VERIFY_FAILED",
      message: "The copy of the table accounts differs.",
    });
  });

  it("is refused while a service runs, and where there is something else", async () => {
    const service = await startTestService({ providers: [new FakeProvider()] });
    const to = await places();
    await expect(moveStorage({ directory: service.data, to })).rejects.toMatchObject({
      code: "DATA_DIRECTORY_IN_USE",
    });
    await service.close(0);
    to.fake.objects.set("imgbatch/other", {
      bytes: Buffer.from("x"),
      etag: '"x"',
      modifiedMs: 0,
      contentType: "text/plain",
      sha256: undefined,
    });
    const refused = { code: "FILE_EXISTS", message: "s3://images/imgbatch is not empty." };
    await expect(moveStorage({ directory: service.data, to })).rejects.toMatchObject(refused);
    to.fake.objects.clear();
    const admin = await openAdmin({ directory: service.data, storage: to });
    await admin.createAccount({ name: "other", balanceMicroUsd: 1 });
    await admin.close();
    await expect(moveStorage({ directory: service.data, to })).rejects.toMatchObject({
      message: "postgres://db.example/imgbatch is not empty.",
    });
    await (await startTestService({ data: service.data })).close(0);
  });
});

it("[MOVE-1] files alone go to a bucket, and the database stays", async () => {
  const { data, id } = await usedDirectory();
  const to = await places(false);
  expect(await moveStorage({ directory: data, to })).toMatchObject({ database: null, tables: 0, files: 5 });
  await expect(startTestService({ data })).rejects.toMatchObject({ code: "INVALID_CONFIG" });
  expect(await checkOf(data, to)).toMatchObject({ images: 5, problems: [] });
  const { stores, blobs, close } = await openStorage(to, { directory: data });
  expect(await stores.read.batches.byId(id)).toMatchObject({ successCount: 5 });
  expect(await blobs.list("outputs/")).toHaveLength(5);
  await close();
});

it("while files move, neither the old place nor the new one is used", async () => {
  const { data } = await usedDirectory();
  const to = await places(false);
  const isOutput = ({ method, key }: { method: string; key: string }) =>
    method === "PUT" && key.includes("/outputs/");
  to.fake.fail({ refuse: { status: 403, code: "AccessDenied" } }, { when: isOutput });
  await expect(moveStorage({ directory: data, to })).rejects.toThrow("object storage");
  to.fake.heal();
  const refused = {
    code: "INVALID_CONFIG",
    message: expect.stringContaining("is being moved to s3://images/imgbatch"),
  };
  for (const storage of [LOCAL_STORAGE, to])
    await expect(openStorage(storage, { directory: data })).rejects.toMatchObject(refused);
  await moveStorage({ directory: data, to });
  await (await openStorage(to, { directory: data })).close();
});

it("what was broken before is told, and moved as it is", async () => {
  const { data } = await usedDirectory();
  const open = await openStorage(LOCAL_STORAGE, { directory: data });
  const key = (await open.blobs.list("outputs/"))[0]?.key ?? "";
  await open.close();
  await writeFile(join(data, DATA_FILES.blobs, key), "damaged");
  const { problems } = await moveStorage({ directory: data, to: await places(false) });
  expect(problems).toEqual([expect.stringContaining(`${key} is damaged`)]);
  expect(await readFile(join(data, DATA_FILES.blobs, key), "utf8")).toBe("damaged");
});

it("a move to nowhere, and one of no data directory, are wrong usage", async () => {
  const { data } = await usedDirectory();
  await expect(moveStorage({ directory: data, to: LOCAL_STORAGE })).rejects.toMatchObject({ code: "USAGE" });
  const to = await places(false);
  await expect(moveStorage({ directory: join(data, "none"), to })).rejects.toMatchObject({ code: "USAGE" });
});
