import { expect, it } from "vitest";
import { startTestService } from "../support/service.ts";

const KEY = (key: string) => ({ authorization: `Bearer ${key}`, "content-type": "application/json" });

it("understands addresses that clients build from base URLs that are nearly right", async () => {
  const { url, credentials } = await startTestService({ workers: false });
  const headers = KEY(credentials.api_key);
  for (const path of ["//v1//models", "/v1beta/openai/models", "/v1alpha/models", "/v1beta//models"]) {
    const answer = await fetch(url + path, { headers });
    expect([path, answer.status]).toEqual([path, 200]);
    await answer.arrayBuffer();
  }
  const body = JSON.stringify({ model: "models/gpt-image-1", prompt: "a kite" });
  const made = await fetch(`${url}/v1beta/openai/images/generations`, { method: "POST", headers, body });
  expect(made.status).toBe(200);
  await made.arrayBuffer();
});

it("names the right base URL where another one cannot be meant, in the shape of the API", async () => {
  const { url, credentials } = await startTestService({ workers: false });
  const headers = KEY(credentials.api_key);
  for (const path of ["/v1/v1/images/generations", "/openai/v1/images/edits", "/v1/images/generations/"]) {
    const answer = await fetch(url + path, { method: "POST", headers, body: "{}" });
    expect([path, answer.status]).toEqual([path, 404]);
    const { error } = (await answer.json()) as { error: object };
    expect(error).toMatchObject({ param: null, message: expect.stringContaining(`${url}/v1`) });
  }
});
