import { describe, expect, it } from "vitest";
import { parseConfig } from "../../../src/config/load.ts";
import { MODEL, startTestService, type TestService } from "../../support/service.ts";

const PRO = "vendorx-3-pro-image";

async function get(service: TestService, path: string) {
  const answer = await fetch(service.url + path, { headers: { "x-api-key": service.credentials.api_key } });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

const namesOf = (models: unknown) => (models as { name: string }[]).map(({ name }) => name);

describe("the models for real time", () => {
  it("have sizes, ratios, and the price that the group pays", async () => {
    const groups = [{ name: "default", rateMultiplier: 2 }];
    const service = await startTestService({ workers: false, config: { groups } });
    const { body } = await get(service, `/v1beta/models/${PRO}`);
    expect(body).toMatchObject({
      name: `models/${PRO}`,
      supportedGenerationMethods: ["generateContent", "streamGenerateContent", "batchGenerateContent"],
      imageSizes: ["1K", "2K", "4K"],
      maxInputImages: 14,
      pricing: { currency: "usd", images: { "1K": 0.268, "2K": 0.268, "4K": 0.48 } },
    });
    expect(body.aspectRatios).toHaveLength(10);
    expect(body).toMatchObject({
      imageOptions: {
        quality: ["low", "medium", "high"],
        defaultQuality: "medium",
        background: ["transparent", "opaque", "auto"],
        seed: true,
        negativePrompt: true,
      },
      pricing: { qualities: { high: { "1K": 0.268, "4K": 0.48 } } },
    });
    expect((await get(service, `/v1beta/models/${MODEL}`)).body.aspectRatios).toHaveLength(14);
  });

  it("are those of the group that are for real time and have a price", async () => {
    const models = [
      { id: "a", prices: { "1K": 1 } },
      { id: "batch-only", realtime: false, prices: { "1K": 1 } },
      { id: "no-price" },
      { id: "not-ours", prices: { "1K": 1 } },
      { id: "org/b", batch: false, prices: { "1K": 0 } },
    ];
    const groups = [{ name: "default", models: ["a", "batch-only", "no-price", "org/b"] }];
    const service = await startTestService({ workers: false, config: { models, groups } });
    expect(namesOf((await get(service, "/v1beta/models")).body.models)).toEqual(["models/a", "models/org/b"]);
    for (const id of ["batch-only", "no-price", "not-ours"]) {
      expect((await get(service, `/v1beta/models/${id}`)).status).toBe(404);
      expect((await get(service, `/v1/models/${id}`)).status).toBe(404);
    }
    expect((await get(service, "/v1/models/org%2Fb")).body).toMatchObject({
      id: "org/b",
      name: "models/org/b",
    });
  });

  it("have no model that no provider makes", async () => {
    const service = await startTestService({ workers: false, providers: [] });
    for (const path of ["/v1beta/models", "/v1/models"])
      expect((await get(service, path)).body.models).toEqual([]);
    expect((await get(service, `/v1beta/models/${MODEL}`)).status).toBe(404);
  });

  it("come in pages, 50 on one unless asked for otherwise, and the last has no token", async () => {
    const models = Array.from({ length: 60 }, (_, i) => ({ id: `m${i}`, prices: { "1K": 1 } }));
    const service = await startTestService({ workers: false, config: { models } });
    const first = (await get(service, "/v1beta/models")).body;
    expect(namesOf(first.models)).toHaveLength(50);
    const rest = (await get(service, `/v1beta/models?pageToken=${first.nextPageToken}`)).body;
    expect(namesOf(rest.models)[0]).toBe("models/m50");
    expect(rest).not.toHaveProperty("nextPageToken");
    const some = (await get(service, "/v1beta/models?page_size=2&page_token=1")).body;
    expect([namesOf(some.models), some.nextPageToken]).toEqual([["models/m1", "models/m2"], "3"]);
    expect((await get(service, "/v1beta/models?pageSize=5000")).body).not.toHaveProperty("nextPageToken");
    const shared = (await get(service, "/v1/models")).body as { data: unknown[]; models: unknown[] };
    expect(shared.data.at(-1)).toMatchObject({ id: "chatgpt-image-latest", name: "models/m0" });
    expect([shared.data.length, shared.models.length]).toEqual([61, 60]);
    for (const query of [
      "pageSize=-1",
      "pageSize=x",
      "pageToken=61",
      "pageToken=x",
      "pageSize=1&pageSize=2",
    ]) {
      expect((await get(service, `/v1beta/models?${query}`)).status).toBe(400);
    }
  });

  it("are found on /v1 by every name that makes images, and by no other", async () => {
    const names = { "house-*": "m1", "house-red": "m2", gone: "m3" };
    const models = ["m0", "m1", "m2"].map((id) => ({ id, prices: { "1K": 1 } }));
    const config = { models: [...models, { id: "m3", realtime: false }], openai: { models: names } };
    const service = await startTestService({ workers: false, config });
    const found = async (name: string) => {
      const { status, body } = await get(service, `/v1/models/${name}`);
      return [status, body.id, body.name];
    };
    expect(await found("gpt-image-1")).toEqual([200, "gpt-image-1", "models/m0"]);
    expect(await found("dall-e-3")).toEqual([200, "dall-e-3", "models/m0"]);
    expect(await found("house-blue")).toEqual([200, "house-blue", "models/m1"]);
    expect(await found("house-red")).toEqual([200, "house-red", "models/m2"]);
    for (const name of ["gone", "gpt-4", "x".repeat(5000)]) expect((await found(name))[0]).toBe(404);
    const { body } = await get(service, `/v1/models/${"x".repeat(5000)}`);
    expect(JSON.stringify(body).length).toBeLessThan(1000);
  });

  it("must exist to have another name in the configuration", () => {
    const wrong = (models: object) => () => parseConfig({ openai: { models } }, "test");
    expect(wrong({ flux: "nope" })).toThrow("openai.models.flux: there is no model nope");
    expect(wrong({ "*x": "vendorx-3-pro-image" })).toThrow("a * at its end");
  });

  it("are OpenAI's on /v1, and have the fields of native ones, too", async () => {
    const service = await startTestService({ workers: false });
    const key = service.credentials.api_key;
    const answers = [];
    for (const headers of [{ authorization: `Bearer ${key}` }, { "x-api-key": key }]) {
      answers.push(
        await (await fetch(`${service.url}/v1/models`, { headers: headers as HeadersInit })).json(),
      );
    }
    expect(answers[1]).toEqual(answers[0]);
    expect(answers[0]).toMatchObject({ object: "list", data: expect.any(Array), models: expect.any(Array) });
    expect(answers[0].data[0]).toMatchObject({
      id: MODEL,
      object: "model",
      created: 0,
      owned_by: "imgbatch",
    });
    expect(answers[0].data[0]).toMatchObject(answers[0].models[0]);
    const head = await fetch(`${service.url}/v1/models`, { method: "HEAD", headers: { "x-api-key": key } });
    expect([head.status, await head.text()]).toEqual([200, ""]);
  });
});
