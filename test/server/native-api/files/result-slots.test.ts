import type { Request, Response } from "express";
import { expect, it } from "vitest";
import type { HandlerDeps } from "../../../../src/server/deps.ts";
import { DownloadSlots } from "../../../../src/server/http/limits.ts";
import { download } from "../../../../src/server/jobs/vendor-files.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

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
