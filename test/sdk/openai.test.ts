import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findPreset } from "../../src/providers/catalogue/catalogue.ts";
import { areInstalled, type Sdk, startSdk } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

describe.skipIf(!areInstalled)("the OpenAI library", () => {
  let service: SdkService;
  let sdk: Sdk;
  const open = (apiKey: string) =>
    startSdk("openai", { apiKey, baseURL: `${service.url}/v1`, maxRetries: 0 });
  beforeAll(async () => {
    service = await startSdkService();
    sdk = open(service.apiKey);
  });
  afterAll(async () => {
    await sdk?.close();
    await service?.close();
  });

  it("lists the models and gets one, with the fields of its own kind", async () => {
    const { value } = await sdk.call<{ id: string }[]>("models.list");
    const ids = (findPreset("google")?.models ?? []).map(({ id }) => id);
    expect(value.map((model) => model.id)).toEqual([...ids, "chatgpt-image-latest"]);
    expect((await sdk.call("models.retrieve", MODEL)).value).toMatchObject({
      id: MODEL,
      object: "model",
      created: expect.any(Number),
      owned_by: expect.any(String),
    });
  });

  it("gets typed errors with a code and the request id", async () => {
    const missing = (await sdk.call("models.retrieve", "none")).error;
    expect(missing?.classes).toContain("NotFoundError");
    expect(missing).toMatchObject({ status: 404, requestID: expect.stringMatching(/^req_/) });
    expect(missing?.code).toEqual(expect.any(String));

    const stranger = open("wrong");
    const refused = (await stranger.call("models.list")).error;
    expect(refused?.classes).toContain("AuthenticationError");
    expect(refused).toMatchObject({ status: 401, requestID: expect.stringMatching(/^req_/) });
    await stranger.close();
  });
});
