import { describe, expect, it } from "vitest";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { FakeProvider, made, madeAfter, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { MODEL, openBeside, startTestService } from "../../support/service.ts";

/** Makes nothing of a first batch but the good ones; everything of a retry. */
function unluckyProvider(): FakeProvider {
  const provider = new FakeProvider();
  provider.answer = async ({ prompt, origin }) => {
    if (prompt === "refused") throw new ProviderError("SAFETY_BLOCKED", "no");
    if (prompt === "broken" && origin === "batch") throw new ProviderError("PROVIDER_ITEM_FAILED", "no");
    return made(await tinyPng());
  };
  return provider;
}

async function referenceImage() {
  return { mime_type: "image/png", data: (await tinyPng(7)).toString("base64") };
}

async function failedBatch(prompts: readonly string[]) {
  const provider = unluckyProvider();
  const service = await startTestService({ providers: [provider] });
  const reference_images = [await referenceImage()];
  const items = prompts.map((prompt) => ({ custom_id: `the ${prompt} one`, prompt, reference_images }));
  const { id } = await service.submit({ model: MODEL, task_name: "foxes", metadata: { a: "b" }, items });
  await service.until(id);
  return { service, provider, id };
}

describe("a retry of the failed items inside the service", () => {
  it("makes a linked batch of the failed items alone, with their references, and pays them once", async () => {
    const { service, provider, id } = await failedBatch(["good", "broken", "refused"]);
    provider.requests.length = 0;
    expect(await service.retry(id)).toMatchObject({ task_name: "foxes", item_count: 1 });
    const { stores } = await openBeside(service.data);
    const retried = (await stores.read.batches.latest(1))[0];
    const ended = await service.until(retried?.id ?? "");
    expect(ended).toMatchObject({
      parent_batch_id: id,
      success_count: 1,
      fail_count: 0,
      actual_cost: 0.0335,
    });
    expect(retried?.metadata).toEqual((await stores.read.batches.byId(id))?.metadata);
    expect(provider.requests).toHaveLength(1);
    expect(provider.requests[0]).toMatchObject({ prompt: "broken", origin: "child-batch" });
    expect(await provider.requests[0]?.references[0]?.read()).toEqual(await tinyPng(7));
    expect(provider.requests[0]?.references).toHaveLength(1);
    expect((await stores.read.items.byCustomId(ended.id, "the broken one"))?.status).toBe("success");
    const account = await stores.read.accounts.byName("default");
    expect(account).toMatchObject({ balanceMicroUsd: 1_000_000_000 - 2 * 33_500, heldMicroUsd: 0 });
    await service.expectBooks();
  });

  it("refuses when nothing is left to try, and says why", async () => {
    const refused = await failedBatch(["good", "refused"]);
    await expect(refused.service.retry(refused.id)).rejects.toMatchObject({
      code: "BATCH_IMAGE_INVALID_ITEMS",
      message: "The failed items were refused for what they ask.",
    });
    const good = await failedBatch(["good"]);
    await expect(good.service.retry(good.id)).rejects.toThrow("No item has failed.");
    expect((await good.service.retry("imgbatch_no").catch((error) => error)).code).toBe(
      "BATCH_IMAGE_NOT_FOUND",
    );
  });

  it("refuses when a reference is damaged, and keeps and holds nothing", async () => {
    const { service, id } = await failedBatch(["broken"]);
    const { stores, blobs } = await openBeside(service.data);
    const [reference] = await stores.read.references.ofSource(id, 0);
    await blobs.put(reference?.blobKey ?? "", await tinyPng(8));
    const inputs = async () => (await blobs.list("inputs/")).map(({ key }) => key);
    const before = [await inputs(), await stores.read.accounts.list()];
    await expect(service.retry(id)).rejects.toThrow("The reference images of this batch are gone");
    expect([await inputs(), await stores.read.accounts.list()]).toEqual(before);
    expect(await stores.read.batches.all()).toHaveLength(1);
  });

  it("refuses a model that the key may not use any more", async () => {
    const { service, id } = await failedBatch(["broken"]);
    await service.close(0);
    const models = [{ id: "another", prices: { "1K": 1 } }];
    const next = await startTestService({ data: service.data, config: { models } });
    await expect(next.retry(id)).rejects.toMatchObject({ code: "BATCH_IMAGE_INVALID_MODEL" });
  });

  it("waits for the end of the batch", async () => {
    const provider = new FakeProvider();
    const held = gate();
    provider.answer = madeAfter(held);
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: [{ prompt: "a" }] });
    await expect(service.retry(id)).rejects.toThrow("The batch has not ended yet.");
    held.open();
    await service.until(id);
  });
});
