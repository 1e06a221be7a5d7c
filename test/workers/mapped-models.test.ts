import { describe, expect, it } from "vitest";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import { FakeProvider } from "../support/fake-provider.ts";
import { items, startTestService } from "../support/service.ts";

const config = {
  models: [
    { id: "a", prices: { "1K": 1 }, mapsTo: "b" },
    { id: "b", prices: { "1K": 3 } },
  ],
};

describe("a batch of a mapped model", () => {
  it("a batch of a mapped model goes to the provider of the other model, and keeps its own price", async () => {
    const [other, right] = [
      new FakeProvider({ name: "other", model: "a" }),
      new FakeProvider({ model: "b" }),
    ];
    const service = await startTestService({ providers: [other, right], config });
    const listed = (await (await service.ask("/models")).json()) as { data: { id: string }[] };
    expect(listed.data.map(({ id }) => id)).toEqual(["a", "b"]);
    const asked = await service.submit({ model: "a", items: items(1) });
    expect(asked).toMatchObject({ model: "a", provider: right.name, estimated_cost: 0.5 });
    expect(await service.until(asked.id)).toMatchObject({ status: "completed", actual_cost: 0.5 });
    expect([other.requests, right.requests]).toMatchObject([[], [{ model: "b" }]]);
  });

  it("a batch of a mapped model moves to a provider of the other model when its own provider is gone", async () => {
    const before = await startTestService({
      providers: [new FakeProvider({ name: "gone" })],
      workers: true,
      config,
    });
    await before.setPaused(true);
    const { id } = await before.submit({ model: "a", items: items(1) });
    await before.close(0);
    const [other, right] = [
      new FakeProvider({ name: "other", model: "a" }),
      new FakeProvider({ model: "b" }),
    ];
    const service = await startTestService({ data: before.data, providers: [other, right], config });
    expect(await service.until(id)).toMatchObject({ status: "completed", provider: right.name });
    expect([other.requests, right.requests]).toMatchObject([[], [{ model: "b" }]]);
  });

  it("each item shows the model version that its provider returned, or null", async () => {
    const provider = new FakeProvider();
    const draw = provider.answer;
    provider.answer = async (request, signal) => {
      if (request.prompt === "picture 2") {
        throw new ProviderError("SAFETY_BLOCKED", "no", { modelVersion: "guard/2" });
      }
      const output = await draw(request, signal);
      return request.prompt === "picture 3" ? { ...output, modelVersion: null } : output;
    };
    const service = await startTestService({ providers: [provider], config });
    const { id } = await service.submit({ model: "a", items: items(3) });
    await service.until(id);
    expect(await service.items(id)).toMatchObject([
      { status: "success", model_version: "fake/1" },
      { status: "failed", model_version: "guard/2", error: { code: "SAFETY_BLOCKED" } },
      { status: "success", model_version: null },
    ]);
  });
});
