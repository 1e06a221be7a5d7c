import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type { s3Blobs } from "../../../src/storage/blobs/s3.ts";
import { type FakeS3, startFakeS3 } from "../fake-s3.ts";
import { tempDir } from "../temp-dir.ts";

type S3Settings = Parameters<typeof s3Blobs>[0];

/** A fake S3 server with the settings that lead to it. It is closed after the test. */
export async function fakeBucket(
  settings: Partial<S3Settings> = {},
): Promise<{ fake: FakeS3; settings: S3Settings }> {
  const fake = await startFakeS3();
  onTestFinished(() => fake.close());
  const { bucket, region, credentials, url: endpoint } = fake;
  const scratchDirectory = join(await tempDir(), "scratch");
  const own = { bucket, prefix: "imgbatch", endpoint, region, ...credentials, scratchDirectory };
  return { fake, settings: { ...own, ...settings } };
}

/** Whether the environment names a real S3 server. */
export const hasRealBucket = process.env.IMGBATCH_TEST_S3 !== undefined;

/**
 * A prefix of its own in the bucket that `IMGBATCH_TEST_S3` names, like `s3+http://127.0.0.1:9000/bucket`; the keys are in the
 * usual variables.
 */
export async function realBucket(): Promise<S3Settings> {
  const {
    IMGBATCH_TEST_S3 = "",
    AWS_REGION,
    AWS_ACCESS_KEY_ID = "",
    AWS_SECRET_ACCESS_KEY = "",
  } = process.env;
  const { origin, pathname } = new URL(IMGBATCH_TEST_S3.replace(/^s3\+/, ""));
  return {
    bucket: pathname.split("/")[1] ?? "",
    prefix: `imgbatch-test-${randomBytes(6).toString("hex")}`,
    endpoint: origin,
    region: AWS_REGION ?? "us-east-1",
    accessKeyId: AWS_ACCESS_KEY_ID,
    secretAccessKey: AWS_SECRET_ACCESS_KEY,
    sessionToken: process.env.AWS_SESSION_TOKEN,
    scratchDirectory: join(await tempDir(), "scratch"),
  };
}
