import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import { EXIT_CODES } from "../../src/contract/errors.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { startQuickService } from "../soak/killed-service.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";
import { needStrace, watchCalls } from "../support/strace.ts";
import { tempDir } from "../support/temp-dir.ts";

const failing = (call: string, when: string, error = "EIO") => [
  ...["-e", `trace=${call}`],
  ...["-e", `inject=${call}:error=${error}:when=${when}`],
];

function post(url: string, key: string, count: number): Promise<Response> {
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    "idempotency-key": "k",
  };
  const body = JSON.stringify({ model: MODEL, items: items(count) });
  return fetch(`${url}/v1/images/batches`, { method: "POST", headers, body });
}

describe("a disk that fails", () => {
  it("under the database ends the service at once: one clear line, exit 9, and the next start goes on", async (context) => {
    needStrace(context);
    const data = await tempDir();
    // The batch is still at work when the disk begins to fail: nothing is written for one that has ended.
    const slow = ["--simulate", "latency=60s"];
    const serve = startNode([BIN, "serve", "--port", "0", "--data", data, ...slow]);
    const { url } = JSON.parse(await serve.line());
    const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
    const earlier = (await (await post(url, key, 1)).json()) as BatchObject;
    await watchCalls(serve.child.pid ?? 0, failing("fsync", "1+"));
    const answer = await fetch(`${url}/v1/images/batches/${earlier.id}/cancel`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}` },
    }).catch(() => null);
    await answer?.text();
    // Either the cancellation or the work on the batch meets the failure first.
    if (answer) expect([502, 200]).toContain(answer.status);
    const { code, stderr } = await serve.exited;
    expect(code).toBe(EXIT_CODES.saving.code);
    expect(stderr).toContain("the database cannot be used any more; stopping");
    expect(stderr).toContain(`error: The data directory ${data} cannot be used`);
    expect(stderr).not.toMatch(/^ +at |\\n +at /m);

    const service = await startTestService({ data });
    expect((await service.until(earlier.id)).status).toMatch(/completed|cancelled/);
    const { stores, blobs } = await openBeside(data);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("under the service inside a command ends the command: exit 9, no hang, and the same command goes on", async (context) => {
    needStrace(context);
    const directory = await tempDir();
    const [data, output] = [join(directory, "data"), join(directory, "out")];
    const prompts = join(directory, "prompts.jsonl");
    await writeFile(prompts, '{"prompt": "a red fox"}');
    const config = join(directory, "config.json");
    // Its image is not made before the disk begins to fail.
    await writeFile(config, '{"simulate": {"latencyMs": 8000}}');
    const args = [BIN, "submit", "--config", config, "--data", data, "--output", output, "--json", prompts];
    const command = startNode(args, { env: cleanEnvironment() });
    await expect.poll(() => readFile(join(data, "server.json"), "utf8").catch(() => "")).not.toBe("");
    await watchCalls(command.child.pid ?? 0, failing("fsync", "1+"));
    const { code, stdout } = await command.exited;
    expect(JSON.parse(stdout)).toMatchObject({ ok: false, error: { code: "STORAGE_FAILED" }, exit_code: 9 });
    expect(code).toBe(9);
    await writeFile(config, "{}");
    const again = await startNode(args, { env: cleanEnvironment() }).exited;
    expect(again.code, again.stderr).toBe(0);
  });

  it("[DISK-2] under an image: the file is thrown away and written again, and the image is not made again", async (context) => {
    needStrace(context);
    const directory = await tempDir();
    const service = await startQuickService(directory);
    await watchCalls(service.fileThread, failing("fsync", "1"));
    const { id } = (await (await post(service.url, service.key, 3)).json()) as BatchObject;
    const { stores, blobs } = await openBeside(join(directory, "data"));
    await expect.poll(async () => (await stores.read.batches.byId(id))?.status).toBe("completed");
    expect(await stores.read.batches.byId(id)).toMatchObject({ successCount: 3, failCount: 0 });
    expect(await service.generations()).toHaveLength(3);
    expect(await blobs.list("outputs/")).toHaveLength(3);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("under the database because a quota is used up refuses what comes, ends nothing, and goes on when there is room", async (context) => {
    needStrace(context);
    const data = await tempDir();
    const serve = startNode([BIN, "serve", "--port", "0", "--data", data]);
    const { url } = JSON.parse(await serve.line());
    const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
    const quota = await watchCalls(serve.child.pid ?? 0, failing("pwrite64", "1+", "EDQUOT"));
    const refused = await post(url, key, 1);
    expect([refused.status, await refused.json()]).toMatchObject([
      502,
      { error: { code: "BATCH_IMAGE_QUEUE_FAILED", message: "The service's disk is full." } },
    ]);
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    await quota.stop();
    const { id } = (await (await post(url, key, 1)).json()) as BatchObject;
    const { stores, blobs } = await openBeside(data);
    await expect.poll(async () => (await stores.read.batches.byId(id))?.status).toBe("completed");
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
    expect(await readdir(data)).not.toContain("imgbatch.db.probe");
  });

  it("under an image because a quota is used up keeps the image, and stores it when there is room", async (context) => {
    needStrace(context);
    const directory = await tempDir();
    const service = await startQuickService(directory);
    const quota = await watchCalls(service.fileThread, failing("openat", "1+", "EDQUOT"));
    const { id } = (await (await post(service.url, service.key, 1)).json()) as BatchObject;
    const { stores, blobs } = await openBeside(join(directory, "data"));
    await expect.poll(() => service.generations().then((made) => made[0])).toBeTruthy();
    // It is tried again, once a second.
    await expect.poll(() => quota.seen().then((text) => text.split("INJECTED").length)).toBeGreaterThan(2);
    expect(await stores.read.batches.byId(id)).toMatchObject({ status: "running", successCount: 0 });
    await quota.stop();
    await expect.poll(async () => (await stores.read.batches.byId(id))?.status).toBe("completed");
    expect(await stores.read.batches.byId(id)).toMatchObject({ successCount: 1, failCount: 0 });
    expect(await service.generations()).toHaveLength(1);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });
});
