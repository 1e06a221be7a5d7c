import { existsSync } from "node:fs";
import { readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";

describe("a restart", () => {
  it("a graceful stop parks running items, and the next start makes only what was not made", async () => {
    const provider = new FakeProvider({ concurrency: 1 });
    const third = gate();
    // Beside others, another process may ask for the pictures after the third.
    const areMade = ["picture 1", "picture 2"];
    provider.answer = async ({ prompt }, signal) => {
      if (prompt === "picture 3") third.open();
      if (!areMade.includes(prompt))
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      return made(await tinyPng());
    };
    const first = await startTestService({ providers: [provider] });
    const { id } = await first.submit({ model: MODEL, items: items(5) });
    await third.promise;
    await expect.poll(async () => (await first.batch(id)).success_count).toBe(2);
    const asked = provider.requests.length;
    await first.close(0);
    expect(provider.requests).toHaveLength(asked);

    const next = new FakeProvider();
    const second = await startTestService({ data: first.data, providers: [next] });
    expect(await second.until(id)).toMatchObject({ status: "completed", success_count: 5 });
    const prompts = next.requests.map((request) => request.prompt);
    expect(prompts.sort()).toEqual(["picture 3", "picture 4", "picture 5"]);
    expect(next.requests.map(({ attempt }) => attempt)).toEqual([1, 1, 1]);
  });

  it("removes half-written files and images that no row names", async () => {
    const provider = new FakeProvider();
    provider.answer = (_request, signal) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const first = await startTestService({ providers: [provider] });
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    await expect.poll(() => provider.running).toBe(1);
    await first.close(0);
    const outputs = join(first.data, "blobs", "outputs", id);
    await rm(outputs, { recursive: true, force: true });
    const { blobs } = await openBeside(first.data);
    await blobs.put(`outputs/${id}/7-abc-0`, await tinyPng());
    await writeFile(join(outputs, ".x.partial"), "half");
    const halfKey = join(first.data, ".credentials.json.0123456789ab.partial");
    await writeFile(halfKey, "half");
    await blobs.put("inputs/imgbatch_never_accepted/abc", await tinyPng());

    const second = await startTestService({ data: first.data });
    await second.until(id);
    expect(await readdir(outputs)).toHaveLength(1);
    expect(await blobs.list("inputs/")).toEqual([]);
    expect(existsSync(halfKey)).toBe(false);
  });

  it("removes an image that came to be stored after the images of its batch were deleted", async () => {
    const first = await startTestService();
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    await first.until(id);
    expect((await first.ask(`/${id}/outputs`, { method: "DELETE" })).status).toBe(200);
    await first.close(0);
    const { blobs } = await openBeside(first.data);
    expect(await blobs.list("outputs/")).toEqual([]);
    await blobs.put(`outputs/${id}/7-abc-0`, await tinyPng());
    await startTestService({ data: first.data });
    expect(await blobs.list("outputs/")).toEqual([]);
  });
});
