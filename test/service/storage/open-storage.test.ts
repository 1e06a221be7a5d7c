import { expect, it, onTestFinished } from "vitest";
import { LOCAL_STORAGE } from "../../../src/config/storage-places.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { openDatabase, openStorage } from "../../../src/service/storage/open-storage.ts";
import { startFakeS3 } from "../../support/fake-s3.ts";
import { hasPostgres, newDatabase } from "../../support/postgres.ts";
import { tempDir } from "../../support/temp-dir.ts";

it.skipIf(!hasPostgres)("the advice for a database that is not there is to create it", async () => {
  const url = new URL(await newDatabase());
  url.pathname = "/nowhere";
  const place = { kind: "postgres", url: url.href, name: "postgres://db/nowhere" } as const;
  await expect(openDatabase(place, await tempDir(), systemClock)).rejects.toMatchObject({
    code: "STORAGE_FAILED",
    advice: expect.stringContaining("CREATE DATABASE"),
  });
});

it("[S3-4] storage that is closed leaves no request to its bucket", async () => {
  const fake = await startFakeS3();
  onTestFinished(() => fake.close());
  const { bucket, region, url: endpoint, credentials } = fake;
  const blobs = {
    kind: "s3",
    name: "s3://images",
    prefix: "",
    bucket,
    region,
    endpoint,
    ...credentials,
  } as const;
  const storage = await openStorage({ ...LOCAL_STORAGE, blobs }, { directory: await tempDir() });
  fake.fail({ hang: true });
  const listing = storage.blobs.list("ready/").catch((error) => error);
  await expect.poll(() => fake.requests).toHaveLength(1);
  await storage.close();
  expect(await listing).toMatchObject({ name: "StorageUnavailable", reason: "broken" });
});
