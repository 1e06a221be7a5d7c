import { expect, it } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import type { ItemObject } from "../../src/contract/batch-api.ts";
import { type EntryOf, providerEntrySchema } from "../../src/contract/provider-entries.ts";
import type { ItemErrorCode } from "../../src/contract/statuses.ts";
import { type JobProvider, ProviderError } from "../../src/domain/ports/image-provider.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { createNativeBatchAdapter } from "../../src/providers/native/provider.ts";
import { createOpenaiBatchAdapter } from "../../src/providers/openai/provider.ts";
import { createProviders } from "../../src/providers/registry.ts";
import { asJobProvider } from "../../src/providers/upstream/provider.ts";
import { openAdmin } from "../../src/service/admin.ts";
import { FakeProvider, FakeUpstream, made, tinyPng } from "../support/fake-provider.ts";
import { items, MODEL, startTestService } from "../support/service.ts";

/** Draws an image that shows how many references it had. */
function drawing(): FakeProvider {
  const drawer = new FakeProvider();
  drawer.answer = async ({ prompt, references }) => {
    if (prompt === "refused") throw new ProviderError("SAFETY_BLOCKED", "not that");
    return made(await tinyPng(references.length));
  };
  return drawer;
}

/** Submits three items, one with a reference and one that is refused, to a service whose images this provider makes. */
async function handOver(provider: JobProvider) {
  const config = { models: [{ id: MODEL, prices: { "1K": 0 } }] };
  const near = await startTestService({ providers: [provider], config });
  const [a, b, c] = items(3);
  const reference_images = [{ mime_type: "image/png", data: (await tinyPng()).toString("base64") }];
  const refused = { ...c, prompt: "refused" };
  const { id } = await near.submit({ model: MODEL, items: [a, { ...b, reference_images }, refused] });
  expect(await near.until(id)).toMatchObject({ status: "completed", success_count: 2, fail_count: 1 });
  const failed = (await (await near.ask(`/${id}/items?status=failed`)).json()) as { data: object[] };
  expect(failed.data).toMatchObject([{ custom_id: "i3", error: { code: "SAFETY_BLOCKED" } }]);
  return { near, id };
}

it("a service hands its batches to another one as jobs, with references and refusals", async () => {
  const drawer = drawing();
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
  await handOver(provider);
  expect(drawer.requests.map(({ references }) => references.length).sort()).toEqual([0, 0, 1]);
});

it("a service hands its batches to another one through OpenAI's API, and finds its jobs there", async () => {
  const drawer = drawing();
  const far = await startTestService({ providers: [drawer] });
  const written = { type: "openai-batch", name: "far", baseUrl: `${far.url}/v1`, apiKeyEnv: "FAR_KEY" };
  const entry = providerEntrySchema.parse({ ...written, pollSeconds: 0.05 }) as EntryOf<"openai-batch">;
  const secret = (name: string) => (name === "FAR_KEY" ? far.credentials.api_key : null);
  const deps = { clock: systemClock, secret };
  const adapter = createOpenaiBatchAdapter(entry, deps);
  const provider = asJobProvider(entry, adapter, deps);
  const { near, id } = await handOver(provider);
  for (const [item, references] of [["i1", 0] as const, ["i2", 1] as const]) {
    const image = await near.ask(`/${id}/items/${item}/content`);
    expect(Buffer.from(await image.arrayBuffer())).toEqual(await tinyPng(references));
  }
  // Edits and other images are two jobs: all requests of one have the same address.
  const { jobs, next } = await adapter.page(null, AbortSignal.timeout(10_000));
  expect(jobs.map(({ state, jobId }) => [state, typeof jobId])).toEqual([
    ["succeeded", "string"],
    ["succeeded", "string"],
  ]);
  expect(next).toBeNull();
});

it.each(["native", "openai", "native-batch", "openai-batch"])(
  "what a service says of an image that it did not make is the same behind another one (%s)",
  async (type) => {
    const said: Partial<Record<string, ItemErrorCode>> = {
      "no image": "EMPTY_IMAGE_OUTPUT",
      refused: "SAFETY_BLOCKED",
      wrong: "INVALID_ARGUMENT",
      late: "PROVIDER_TIMEOUT",
      broken: "PROVIDER_ITEM_FAILED",
    };
    const drawer = new FakeProvider();
    drawer.answer = async ({ prompt }) => {
      const code = said[prompt];
      if (code !== undefined) throw new ProviderError(code, "not that", { retryable: false });
      return made(await tinyPng());
    };
    const far = await startTestService({ providers: [drawer] });
    const baseUrl = type.startsWith("openai") ? `${far.url}/v1` : far.url;
    const jobs = type.endsWith("-batch") ? { pollSeconds: 0.05 } : {};
    const written = { type, name: "far", baseUrl, apiKeyEnv: "FAR_KEY", free: true, ...jobs };
    const secret = (name: string) => (name === "FAR_KEY" ? far.credentials.api_key : null);
    const { simulate } = parseConfig({}, "test");
    const deps = { clock: systemClock, simulate, secret, decoding: new Decoding() };
    const providers = await createProviders([providerEntrySchema.parse(written)], deps);
    const near = await startTestService({
      providers,
      config: { models: [{ id: MODEL, prices: { "1K": 0 } }] },
    });
    const asked = [...Object.keys(said), "a fox"].map((prompt, n) => ({ custom_id: `i${n}`, prompt }));
    const { id } = await near.submit({ model: MODEL, items: asked });
    await near.until(id);
    const { data } = (await (await near.ask(`/${id}/items`)).json()) as { data: ItemObject[] };
    expect(data.map(({ prompt_preview, error }) => [prompt_preview, error?.code])).toEqual([
      ...Object.entries(said),
      ["a fox", undefined],
    ]);
  },
);

it.each(["native", "native-batch"])(
  "[OPT-6] a service asks another one for a seed only for a further output, and only where the other's list has it (%s)",
  async (type) => {
    const seedsOf = async (provider: FakeProvider) => {
      const far = await startTestService({ providers: [provider] });
      const admin = await openAdmin({ directory: far.data });
      await admin.topUp("default", 5_000_000, { isReal: true });
      await admin.close();
      const jobs = type.endsWith("-batch") ? { pollSeconds: 0.05 } : {};
      const written = { type, name: "far", baseUrl: far.url, apiKeyEnv: "FAR_KEY", free: true, ...jobs };
      const secret = (name: string) => (name === "FAR_KEY" ? far.credentials.api_key : null);
      const { simulate } = parseConfig({}, "test");
      const deps = { clock: systemClock, simulate, secret, decoding: new Decoding() };
      const providers = await createProviders([providerEntrySchema.parse(written)], deps);
      const config = { models: [{ id: MODEL, prices: { "1K": 0 } }] };
      const near = await startTestService({ providers, config });
      const { id } = await near.submit({ model: MODEL, items: [{ prompt: "a fox", output_count: 3 }] });
      expect(await near.until(id)).toMatchObject({ success_count: 3 });
      const { data } = (await (await near.ask(`/${id}/items`)).json()) as { data: ItemObject[] };
      const sent = provider.requests.flatMap(({ options }) => options.seed ?? []);
      if (type === "native") expect(data.flatMap(({ seed }) => seed ?? []).sort()).toEqual([...sent].sort());
      return new Set(sent).size;
    };
    expect(await seedsOf(new FakeProvider())).toBe(2);
    expect(await seedsOf(new FakeUpstream("far"))).toBe(0);
  },
);
