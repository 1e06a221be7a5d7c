import { existsSync, readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openAdmin } from "../../src/service/admin.ts";
import { BIN, startNode } from "../support/processes.ts";
import { items, MODEL, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

it("[DATA-5] a second owner does not start when the file of the lock was removed, however often it tries", async () => {
  const data = await tempDir();
  const serve = startNode([BIN, "serve", "--port", "0", "--data", data]);
  const { url } = JSON.parse(await serve.line());
  await rm(join(data, "lock.db"));
  for (const attempt of ["first", "second"]) {
    await expect(startTestService({ data }), attempt).rejects.toMatchObject({
      code: "DATA_DIRECTORY_IN_USE",
      message: expect.stringContaining(url),
    });
  }
  const admin = await openAdmin({ directory: data });
  expect((await admin.check()).problems).toEqual([]);
  admin.close();
  expect(JSON.parse(readFileSync(join(data, "server.json"), "utf8"))).toMatchObject({ url });
  serve.child.kill("SIGKILL");
  await serve.exited;
  const next = await startTestService({ data });
  await next.until((await next.submit({ model: MODEL, items: items(1) })).id);
  expect(existsSync(join(data, "lock.db"))).toBe(true);
});

it("[DATA-5] the file of the lock may be missing when nobody owns the directory", async () => {
  const first = await startTestService();
  await first.close(0);
  await rm(join(first.data, "lock.db"));
  await startTestService({ data: first.data });
});
