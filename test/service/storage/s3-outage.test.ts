import { expect, it, onTestFinished } from "vitest";
import type { StoragePlaces } from "../../../src/config/storage-places.ts";
import type { BatchObject } from "../../../src/contract/batch-api.ts";
import { openStorage } from "../../../src/service/storage/open-storage.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import type { S3Request } from "../../support/fake-s3.ts";
import { fakeBucket } from "../../support/s3/buckets.ts";
import { MODEL, startServiceOn } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** A service with its images in a bucket. */
async function serviceOnS3() {
  const { fake, settings } = await fakeBucket();
  const storage = {
    database: { kind: "sqlite" },
    blobs: { kind: "s3", name: "s3://test", ...settings },
  } as StoragePlaces;
  const provider = new FakeProvider();
  const directory = await tempDir();
  const service = await startServiceOn(storage, { dataDirectory: directory, providers: [provider] });
  const { stores, close } = await openStorage(storage, { directory });
  onTestFinished(() => close());
  const ask = async (path: string, body?: object) => {
    const headers = {
      authorization: `Bearer ${service.credentials?.api_key}`,
      "content-type": "application/json",
    };
    const init = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
    return (await (await fetch(`${service.url}/v1/images/batches${path}`, init)).json()) as BatchObject;
  };
  return { fake, provider, stores, ask };
}

it("[DISK-2] while a bucket refuses, images wait, nothing is made twice, and no provider is to blame", async () => {
  const { fake, provider, stores, ask } = await serviceOnS3();
  provider.answer = async (request) =>
    made(...(await Promise.all(request.references.map(({ read }) => read()))));
  /** Refuses such requests until `count` were refused. */
  const outage = (count: number, when: (request: S3Request) => boolean) => {
    let refused = 0;
    fake.fail(
      { refuse: { status: 403, code: "AccessDenied" } },
      { times: count, when: (request) => when(request) && ++refused > 0 },
    );
    return () => refused;
  };
  const ofInputs = outage(4, ({ method, key }) => method === "GET" && key.includes("/inputs/"));
  const ofPuts = outage(2, ({ method, key }) => method === "PUT" && key.includes("/outputs/"));
  const ofReadBack = outage(2, ({ method, key }) => method === "GET" && key.includes("/outputs/"));
  const reference = { mime_type: "image/png", data: (await tinyPng()).toString("base64") };
  const items = [1, 2].map((n) => ({ custom_id: `i${n}`, prompt: "a fox", reference_images: [reference] }));
  const { id } = await ask("", { model: MODEL, items });
  await expect.poll(async () => (await ask(`/${id}`)).status).toBe("completed");
  expect(await ask(`/${id}`)).toMatchObject({ success_count: 2, fail_count: 0 });
  expect([ofInputs(), ofPuts(), ofReadBack()]).toEqual([4, 2, 2]);
  expect(provider.requests).toHaveLength(2);
  const rows = await stores.read.items.page(id, { afterPosition: -1, limit: 10 });
  expect(rows.map(({ attempts }) => attempts)).toEqual([0, 0]);
  expect([...fake.objects.keys()].filter((key) => key.includes("/outputs/"))).toHaveLength(2);
});
