import { expect, it } from "vitest";
import { fitChecker } from "../../support/openapi.ts";
import { content, generate } from "../../support/realtime.ts";
import { MODEL, startTestService } from "../../support/service.ts";

it("[OPS-3] the description fits the answers and refusals of the real-time API", async () => {
  const service = await startTestService({ workers: false });
  const { statuses, expectFit } = fitChecker();
  const get = (path: string, key = service.credentials.api_key) =>
    fetch(service.url + path, { headers: { authorization: `Bearer ${key}` } });
  for (const prefix of ["/v1beta", "/v1"]) {
    const one = `${prefix}/models/{model}`;
    await expectFit("get", `${prefix}/models`, await get(`${prefix}/models?pageSize=1`));
    await expectFit("get", `${prefix}/models`, await get(`${prefix}/models`, "wrong"));
    await expectFit("get", one, await get(`${prefix}/models/${MODEL}`));
    await expectFit("get", one, await get(`${prefix}/models/nope`));
    // The verbs are described once, below /v1beta.
    const verbs = "/v1beta/models/{model}";
    await expectFit("post", `${verbs}:generateContent`, await generate(service, content("x"), { prefix }));
    await expectFit("post", `${verbs}:generateContent`, await generate(service, content(""), { prefix }));
    for (const verb of ["streamGenerateContent?alt=sse", "streamGenerateContent"]) {
      const answer = await generate(service, content("x"), { prefix, verb });
      await expectFit("post", `${verbs}:streamGenerateContent`, answer);
    }
  }
  const each = [200, 401, 200, 404, 200, 400, 200, 200];
  expect(statuses).toEqual([...each, ...each]);
});
