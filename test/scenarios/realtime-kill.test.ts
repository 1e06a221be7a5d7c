import { resolve } from "node:path";
import { expect, it } from "vitest";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { startNode } from "../support/processes.ts";
import { answerOf, content, generate, imagesOf } from "../support/realtime.ts";
import { MODEL, openBeside, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const KILLED_SERVICE = resolve(import.meta.dirname, "../support/killed-service.mjs");

it("[RT-17] a service that is killed while it makes an image gives the money back at its next start", async () => {
  const data = await tempDir();
  const { line, exited } = startNode([KILLED_SERVICE, data, "making:1"]);
  const { url, key } = JSON.parse(await line());
  const headers = { "x-vendorx-api-key": key, "content-type": "application/json" };
  const path = `/v1beta/models/${MODEL}:generateContent`;
  const body = JSON.stringify(content("x"));
  await expect(fetch(url + path, { method: "POST", headers, body })).rejects.toThrow();
  expect((await exited).signal).toBe("SIGKILL");

  const { stores, blobs } = await openBeside(data);
  expect(await stores.read.accounts.byName("default")).toMatchObject({ heldMicroUsd: 67_000 });
  const next = await startTestService({ data, workers: false });
  expect(await stores.read.accounts.byName("default")).toMatchObject({
    balanceMicroUsd: 1e9,
    heldMicroUsd: 0,
  });
  expect(imagesOf(await answerOf(await generate(next, content("x"))))).toHaveLength(1);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
});
