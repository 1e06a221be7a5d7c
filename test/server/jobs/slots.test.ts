import type { Request, Response } from "express";
import { expect, it } from "vitest";
import type { HandlerDeps } from "../../../src/server/deps.ts";
import { DownloadSlots } from "../../../src/server/http/limits.ts";
import { download } from "../../../src/server/jobs/vendor-files.ts";
import { jobOperations } from "../../../src/server/native-api/jobs.ts";
import { FakeClock } from "../../support/fake-clock.ts";

it("a file that the service makes is not made before the download has a slot", async () => {
  const slots = new DownloadSlots(1);
  let made = 0;
  const deps = {
    stores: { read: { files: { find: async () => null } } },
    clock: new FakeClock(),
    slots,
    findGeneratedFile: async () => {
      made++;
      return null;
    },
  } as unknown as HandlerDeps;
  const request = { params: { file: "batch-x" } } as unknown as Request;
  const response = { locals: { key: { id: "key" }, group: {} } } as unknown as Response;
  const fetchFile = async () => download.handler(deps)(request, response);
  const leave = slots.take("key");
  await expect(fetchFile()).rejects.toMatchObject({ code: "BATCH_IMAGE_DOWNLOAD_LIMITED" });
  expect(made).toBe(0);
  leave();
  for (const _ of [1, 2]) await expect(fetchFile()).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
  expect(made).toBe(2);
});

it("a job with its results in it is a download; a job that runs is not", async () => {
  const slots = new DownloadSlots(1);
  let status = "completed";
  let reads = 0;
  const batch = {
    id: "imgbatch_x",
    apiKeyId: "key",
    source: "native",
    itemCount: 1,
    recordDeletedAtMs: null,
  };
  const outputs = { ofBatch: async () => Promise.reject(new Error(`read ${++reads}`)) };
  const batches = { byId: async () => ({ ...batch, status, input: {}, createdAtMs: 0, endedAtMs: null }) };
  const deps = { stores: { read: { batches, outputs } }, slots } as unknown as HandlerDeps;
  const request = { params: { id: "x" } } as unknown as Request;
  const shown: unknown[] = [];
  const response = { locals: { key: { id: "key" }, group: {} }, json: (job: unknown) => shown.push(job) };
  const getJob = jobOperations.find(({ id }) => id === "getJob")?.handler(deps);
  const get = async () => getJob?.(request, response as unknown as Response, () => {});
  const leave = slots.take("key");
  await expect(get()).rejects.toMatchObject({ code: "BATCH_IMAGE_DOWNLOAD_LIMITED" });
  expect(reads).toBe(0);
  status = "running";
  await get();
  expect(shown).toMatchObject([{ metadata: { state: "BATCH_STATE_RUNNING" } }]);
  leave();
  status = "completed";
  for (const nth of [1, 2]) await expect(get()).rejects.toThrow(`read ${nth}`);
});
