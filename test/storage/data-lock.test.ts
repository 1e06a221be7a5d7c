import { copyFileSync, existsSync, readFileSync, renameSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { BIN, startNode } from "../support/processes.ts";
import { items, MODEL, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { checkOf } from "../support/used-directory.ts";

it("a second owner never starts, even when the lock file was removed", async () => {
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
  expect((await checkOf(data)).problems).toEqual([]);
  expect(JSON.parse(readFileSync(join(data, "server.json"), "utf8"))).toMatchObject({ url });
  serve.child.kill("SIGKILL");
  await serve.exited;
  const next = await startTestService({ data });
  await next.until((await next.submit({ model: MODEL, items: items(1) })).id);
  expect(existsSync(join(data, "lock.db"))).toBe(true);
});

it("a directory without an owner and without a lock file can be taken", async () => {
  const first = await startTestService();
  await first.close(0);
  await rm(join(first.data, "lock.db"));
  await startTestService({ data: first.data });
});

/** All copies are made first: a service that stops may remove some of the files. */
function replaceByCopies(data: string, names: readonly string[]): void {
  for (const name of names) copyFileSync(join(data, name), join(data, `${name}.copy`));
  for (const name of names) renameSync(join(data, `${name}.copy`), join(data, name));
}

describe("a service whose files are replaced by copies of them", () => {
  const database = ["imgbatch.db", "imgbatch.db-wal", "imgbatch.db-shm"];
  it.each([
    ["the lock", ["lock.db"]],
    ["the database", database],
  ])("stops with an error that names the file: %s", async (_, names) => {
    const data = await tempDir();
    const serve = startNode([BIN, "serve", "--port", "0", "--data", data]);
    await serve.line();
    replaceByCopies(data, names);
    const { code, stderr } = await serve.exited;
    expect(code).toBe(9);
    expect(stderr).toMatch(/(lock|imgbatch)\.db was removed or replaced while it was in use/);
    const next = await startTestService({ data });
    await next.until((await next.submit({ model: MODEL, items: items(1) })).id);
  });

  it("the replaced service writes nothing more, and leaves the server file of the next service", async () => {
    const first = await startTestService();
    replaceByCopies(first.data, ["lock.db", ...database]);
    const second = startNode([BIN, "serve", "--port", "0", "--data", first.data]);
    const { url } = JSON.parse(await second.line());
    const refused = await first.create({ model: MODEL, items: items(1) });
    expect(refused.status).toBe(502);
    await first.close(0);
    expect(JSON.parse(readFileSync(join(first.data, "server.json"), "utf8"))).toMatchObject({ url });
    second.child.kill("SIGTERM");
    expect((await second.exited).code).toBe(0);
  });
});
