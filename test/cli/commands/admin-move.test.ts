import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { runInProcess } from "../../support/cli-in-process.ts";
import { FakeProvider } from "../../support/fake-provider.ts";
import { hasPostgres, newDatabase } from "../../support/postgres.ts";
import { fakeBucket } from "../../support/s3/buckets.ts";
import { watchSecret } from "../../support/secrets.ts";
import { items, MODEL, startTestService } from "../../support/service.ts";

/** The directory of a service that made two images, a bucket whose keys are in the environment, and how to ask. */
async function prepared() {
  const service = await startTestService({ providers: [new FakeProvider()] });
  const { id } = await service.submit({ model: MODEL, items: items(2) });
  await service.until(id);
  await service.close(0);
  const { settings } = await fakeBucket();
  const { endpoint, region, accessKeyId, secretAccessKey } = settings;
  watchSecret(secretAccessKey);
  vi.stubEnv("AWS_ACCESS_KEY_ID", accessKeyId);
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", secretAccessKey);
  const config = join(service.data, "imgbatch.config.json");
  await writeFile(config, JSON.stringify({ storage: { s3: { endpoint, region } } }));
  const cwd = service.data;
  const admin = (...args: string[]) =>
    runInProcess(["admin", ...args, "--data", service.data, "--config", config], { cwd });
  return { admin, data: service.data };
}

beforeEach(() => () => vi.unstubAllEnvs());

describe("imgbatch admin move", () => {
  it.skipIf(!hasPostgres)(
    "[MOVE-1] moves to a database and a bucket, and says what to configure",
    async () => {
      const { admin, data } = await prepared();
      const to = ["--database", await newDatabase(), "--blobs", "s3://images/imgbatch"];
      const { code, stdout, stderr } = await admin("move", ...to, "--json");
      expect({ code, report: JSON.parse(stdout) }).toMatchObject({
        code: 0,
        report: { data, blobs: "s3://images/imgbatch", files: 2, problems: [] },
      });
      expect(stderr).toContain('"storage": {"database":"postgres://');
      expect((await admin("check", ...to, "--json")).json()).toMatchObject({ images: 2, problems: [] });
    },
  );

  it("[MOVE-1] moves the files alone, and other commands name the new place", async () => {
    const { admin, data } = await prepared();
    const moved = await admin("move", "--blobs", "s3://images");
    expect(moved).toMatchObject({ code: 0 });
    expect(moved.stdout).toContain("2 files (");
    expect(moved.stdout).toContain(`the old data stays in ${data}`);
    const refused = await admin("check", "--json");
    expect(refused.code).toBe(2);
    expect(refused.json().error).toMatchObject({
      code: "INVALID_CONFIG",
      message: expect.stringContaining("was moved to s3://images"),
    });
    expect(refused.stderr).toContain("--blobs s3://images");
  });

  it("needs a new place, and a directory that has data", async () => {
    const { admin } = await prepared();
    const nowhere = await admin("move", "--json");
    expect(nowhere.code).toBe(2);
    expect(nowhere.stderr).toContain("add --database postgres://host/database --blobs s3://bucket/prefix");
  });
});
