import { expect, it } from "vitest";
import { type EntryOf, providerEntrySchema } from "../../src/contract/provider-entries.ts";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { createNativeBatchAdapter } from "../../src/providers/native-batch/provider.ts";
import { asJobProvider } from "../../src/providers/upstream/jobs/job-provider.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { items, MODEL, startTestService } from "../support/service.ts";

it("[JOB-1] a service hands its batches to another one as jobs, with references and refusals", async () => {
  const drawer = new FakeProvider();
  drawer.answer = async ({ prompt, references }) => {
    if (prompt === "refused") throw new ProviderError("SAFETY_BLOCKED", "not that");
    return made(await tinyPng(references.length));
  };
  const keyHeaders = ["x-goog-api-key"];
  const far = await startTestService({ providers: [drawer], config: { vendor: { keyHeaders } } });
  const written = { type: "native-batch", name: "far", baseUrl: far.url, keyHeader: "x-goog-api-key" };
  const more = { apiKeyEnv: "FAR_KEY", pollSeconds: 0.05, jobImages: 2 };
  const entry = providerEntrySchema.parse({ ...written, ...more }) as EntryOf<"native-batch">;
  const deps = {
    clock: systemClock,
    secret: (name: string) => (name === "FAR_KEY" ? far.credentials.api_key : null),
  };
  const provider = asJobProvider(entry, createNativeBatchAdapter(entry, deps), deps);
  const config = { models: [{ id: MODEL, prices: { "1K": 0 } }] };
  const near = await startTestService({ providers: [provider], config });
  const [a, b, c] = items(3);
  const reference_images = [{ mime_type: "image/png", data: (await tinyPng()).toString("base64") }];
  const refused = { ...c, prompt: "refused" };
  const { id } = await near.submit({ model: MODEL, items: [a, { ...b, reference_images }, refused] });
  expect(await near.until(id)).toMatchObject({ status: "completed", success_count: 2, fail_count: 1 });
  const failed = (await (await near.ask(`/${id}/items?status=failed`)).json()) as { data: object[] };
  expect(failed.data).toMatchObject([{ custom_id: "i3", error: { code: "SAFETY_BLOCKED" } }]);
  expect(drawer.requests.map(({ references }) => references.length).sort()).toEqual([0, 0, 1]);
});
