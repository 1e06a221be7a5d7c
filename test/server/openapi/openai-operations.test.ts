import { expect, it } from "vitest";
import { tinyPng } from "../../support/fake-provider.ts";
import { edit, form, generate, imagesOf } from "../../support/openai-images.ts";
import { fitChecker } from "../../support/openapi.ts";
import { startTestService } from "../../support/service.ts";

const GENERATIONS = "/v1/images/generations";
const EDITS = "/v1/images/edits";
const OUTPUT = "/v1/images/outputs/{name}";

it("[OPS-3] the description fits the answers and refusals of OpenAI's API for images", async () => {
  const service = await startTestService({ workers: false });
  const { statuses, expectFit } = fitChecker();
  const png = await tinyPng();
  const images = [{ image_url: `data:image/png;base64,${png.toString("base64")}` }];
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "x", n: 2 }));
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "x", stream: true }));
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "" }));
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "x", model: "nope" }));
  await expectFit("post", GENERATIONS, await generate(service, "{"));
  const wrong = { headers: { authorization: "Bearer wrong" } };
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "x" }, wrong));
  await expectFit("post", EDITS, await edit(service, form(["prompt", "x"], ["image", png])));
  await expectFit("post", EDITS, await edit(service, { prompt: "x", images }));
  await expectFit("post", EDITS, await edit(service, form(["prompt", "x"])));
  await expectFit("post", EDITS, await edit(service, "x", { headers: { "content-type": "text/plain" } }));
  const { data } = await imagesOf(await generate(service, { prompt: "x", response_format: "url" }));
  const url = data[0]?.url ?? "";
  const etag = (await fetch(url, { method: "HEAD" })).headers.get("etag") ?? "";
  await expectFit("get", OUTPUT, await fetch(url));
  await expectFit("get", OUTPUT, await fetch(url, { headers: { range: "bytes=0-3" } }));
  await expectFit("get", OUTPUT, await fetch(url, { headers: { "if-none-match": etag } }));
  await expectFit("get", OUTPUT, await fetch(url, { headers: { range: "bytes=999999-" } }));
  await expectFit("get", OUTPUT, await fetch(`${service.url}/v1/images/outputs/nope`));
  expect(statuses).toEqual([200, 200, 400, 404, 400, 401, 200, 200, 400, 415, 200, 206, 304, 416, 404]);
});
