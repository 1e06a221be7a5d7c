import { describe, expect, it, onTestFinished } from "vitest";
import { parseConfig } from "../../../src/config/load.ts";
import type { EntryOf } from "../../../src/contract/provider-entries.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import { createTaskAdapter } from "../../../src/providers/task/provider.ts";
import { closing } from "../../support/upstream-adapter.ts";
import * as hostile from "../../support/upstreams/hostile.ts";
import { startTasks, type TaskPlan, type TaskVendorName } from "../../support/upstreams/tasks.ts";
import type { RequestChanges } from "../upstream/scripted-server.ts";
import { depsWith, imageRequest, never, PNG, providerError, reference } from "../upstream/scripted-server.ts";

/** Pauses are over at once; time limits are not. */
const hasty: Clock = {
  ...systemClock,
  sleep: (ms, signal) => systemClock.sleep(ms <= 30_000 ? 1 : ms, signal),
};
const KEY = "canary-key-of-the-vendor-of-tasks";
const SIZE = { options: { size: "1K", ratio: "3:2" }, pixels: { widthPx: 1264, heightPx: 848 } } as const;
const MODELS = { replicate: "black-forest-labs/flux-2-pro", bfl: "flux-2-pro" };

/** A fake vendor and the adapter of its preset, whose results come from another host. */
async function vendor(name: TaskVendorName, plan: TaskPlan = {}, fields: object = {}) {
  const fake = await startTasks(name);
  onTestFinished(() => fake.close());
  fake.plan = () => plan;
  const origins = [fake.region.url, fake.files.url];
  const own = { preset: name, baseUrl: `${fake.api.url}/v1`, origins, ...fields };
  const entry = parseConfig({ providers: [own] }, "test").providers[0] as EntryOf<"task">;
  const adapter = closing(createTaskAdapter(entry, depsWith({ [entry.apiKeyEnv ?? ""]: KEY }, hasty)));
  /** What was stored, and how many polls had been sent before. */
  const kept: { task: string; polls: number }[] = [];
  const generate = (
    { known = null, ...changes }: RequestChanges & { known?: string | null } = {},
    signal = never,
  ) => {
    const keep = async (task: string) => void kept.push({ task, polls: fake.count("poll") });
    const options = { ...SIZE.options, ...changes.options };
    const request = { ...SIZE, model: MODELS[name], task: { known, keep }, ...changes, options };
    return adapter.generate(imageRequest(request), signal, () => {});
  };
  return { fake, adapter, kept, generate };
}

/** What the worker and the real-time API make of a failure. */
const facts = ({ code, trouble, retryable }: ProviderError) => ({ code, trouble, retryable });
/** Paid, or perhaps so, and never sent again. */
const LOST = { code: "PROVIDER_ITEM_FAILED", trouble: "ambiguous", retryable: false };
const BILLED = { ...LOST, code: "RESULT_MISSING" };

describe("an upstream that answers with a task", () => {
  it.each(["replicate", "bfl"] as const)(
    "[TASK-1] is polled once its task is stored, and gets its key at no other host: %s",
    async (name) => {
      const { fake, kept, generate } = await vendor(name);
      const made = await generate({
        options: { seed: 7 },
      });
      expect([made.images.length, made.seed]).toEqual([1, 7]);
      expect(kept.map(({ polls }) => polls)).toEqual([0]);
      expect([fake.count("images"), fake.charges()]).toEqual([1, 1]);
      const { api, region, files } = fake.credentials();
      expect([api, files].flat()).toEqual([name === "bfl" ? KEY : `Bearer ${KEY}`]);
      expect(region).toEqual(name === "bfl" ? [KEY] : []);
      await made.discard?.();
    },
  );

  it("gets values as JSON, whatever they look like, and nothing for what was not asked", async () => {
    const prompt = '{seed}", "seed": "{model}';
    const replicate = await vendor("replicate");
    const options = { seed: 3, mimeType: "image/jpeg" } as const;
    await replicate.generate({ prompt, options, references: [reference(PNG)] });
    const image = PNG.toString("base64");
    expect(replicate.fake.tasks[0]?.input.input).toEqual({
      ...{ prompt, aspect_ratio: "3:2", seed: 3, output_format: "jpg" },
      input_images: [`data:image/png;base64,${image}`],
    });
    const bfl = await vendor("bfl");
    const made = await bfl.generate({ references: [reference(PNG), reference(PNG)] });
    expect(bfl.fake.tasks[0]?.input).toEqual({
      ...{ prompt: "a red fox", width: 1264, height: 848, output_format: "png" },
      ...{ input_image: image, input_image_2: image },
    });
    expect(made.usage?.costMicroUsd).toBe(75_000);
    expect((await providerError(bfl.generate({ references: Array(9).fill(reference(PNG)) }))).code).toBe(
      "INVALID_ARGUMENT",
    );
    expect(bfl.fake.count("images")).toBe(1);
  });

  it.each([
    ["lets its task be polled at a host that was not named", { pollAt: "stranger" }, LOST],
    ["names its task with a text without an end", { id: "x".repeat(5_000) }, LOST],
    ["has its result at a private address that was not named", { resultAt: "stranger" }, BILLED],
    ["has a result that has ended", { goneAfterPolls: 1 }, BILLED],
    ["reports a failure", { states: ["starting", "failed"] }, { ...LOST, trouble: null }],
    [
      "reports a refusal in words",
      { states: ["failed"], error: "The input or output was flagged as sensitive. (E005)" },
      { code: "SAFETY_BLOCKED", trouble: null, retryable: false },
    ],
  ] as const)("[TASK-3] fails for good when it %s", async (_, plan, expected) => {
    const { fake, generate } = await vendor("replicate", plan);
    const error = await providerError(generate());
    expect(facts(error)).toEqual(expected);
    if (expected.trouble !== null) expect(error.message).toMatch(/billed/);
    expect([fake.count("images"), fake.stranger.requests]).toEqual([1, []]);
  });

  it.each(["Request Moderated", "Content Moderated"])("refuses content with the state %s", async (state) => {
    const { generate } = await vendor("bfl", { states: ["Pending", state] });
    expect(facts(await providerError(generate()))).toMatchObject({ code: "SAFETY_BLOCKED", trouble: null });
  });

  it("[TASK-3] is polled again for a fresh address of its result", async () => {
    const { fake, generate } = await vendor("bfl", { renews: true });
    fake.files.setBehaviour(hostile.first(1, hostile.status(403)), "download");
    expect((await generate()).images).toHaveLength(1);
    expect([fake.count("images"), fake.count("download"), fake.count("poll")]).toEqual([1, 2, 3]);
  });

  it("is not followed to where a poll redirects", async () => {
    const { fake, generate } = await vendor("replicate");
    fake.api.setBehaviour(hostile.redirect(`${fake.stranger.url}/v1/predictions/x`), "poll");
    expect(facts(await providerError(generate()))).toEqual(LOST);
    expect([fake.count("images"), fake.stranger.requests]).toEqual([1, []]);
  });

  it("may fail to show its task for a while, and says what it lacks before one is begun", async () => {
    const { fake, generate } = await vendor("replicate");
    const answerOf = (status: number) => hostile.answers(fake.vendor.refusal(status));
    for (const [status, trouble] of [
      [402, "billing"],
      [429, "limited"],
    ] as const) {
      fake.api.setBehaviour(answerOf(status));
      expect((await providerError(generate())).trouble).toBe(trouble);
    }
    fake.api.setBehaviour(null);
    fake.api.setBehaviour(
      hostile.first(1, answerOf(429), hostile.first(1, hostile.resetAfter({ made: true }))),
      "poll",
    );
    expect((await generate()).images).toHaveLength(1);
    fake.api.setBehaviour(answerOf(500), "poll");
    const error = await providerError(generate());
    // The task is known: it can be asked for later.
    expect(facts(error)).toMatchObject({ trouble: "failing", retryable: true });
    expect([fake.tasks.length, fake.charges()]).toEqual([2, 2]);
  });

  it("[TASK-3] is told to end a task that takes too long, or that nobody wants", async () => {
    const slow = await vendor("replicate", { states: ["starting"] }, { timeoutSeconds: 0.05 });
    expect(facts(await providerError(slow.generate()))).toEqual(LOST);
    expect(slow.fake.tasks[0]?.isCanceled).toBe(true);

    const { fake, kept, generate } = await vendor("replicate", { states: ["starting"] });
    const ending = new AbortController();
    const making = generate({}, ending.signal);
    await expect.poll(() => kept.length).toBe(1);
    const cancelled = new ProviderError("CANCELLED", "no");
    ending.abort(cancelled);
    await expect(making).rejects.toBe(cancelled);
    expect(fake.tasks[0]?.isCanceled).toBe(true);
  });
});

describe("the data of an upstream with tasks", () => {
  const entry = {
    ...{ name: "mine", type: "task", baseUrl: "https://tasks.example/v1", path: "/images" },
    ...{ body: { prompt: "{prompt}" }, poll: "/images/{id}", states: { done: ["ok"] }, result: "url" },
  };

  it.each([
    ["body.input.text.0", { body: { prompt: "{prompt}", input: { text: ["{prmpt}"] } } }],
    ["body", { body: { text: "a fox" } }],
    ["words.formats", { words: { formats: {} } }],
    ["poll", { poll: "/images" }],
    ["origins.0", { origins: ["https://*.com"] }],
    ["origins.1", { origins: ["https://a.example", "https://a.example/path"] }],
    ["states.done", { states: { done: [] } }],
    ["refusal", { refusal: "(" }],
    ["cost.usd", { cost: { field: "cost", usd: 0 } }],
    ["result", { result: "a..b" }],
  ])("that is wrong is named by its key: %s", (key, wrong) => {
    const read = () => parseConfig({ providers: [{ ...entry, ...wrong }] }, "file");
    expect(read).toThrow(`file: providers.0.${key}: `);
  });

  it("decides what a request may ask for", () => {
    const takesOf = (body: object) => {
      const config = parseConfig(
        { providers: [{ ...entry, body: { prompt: "{prompt}", ...body } }] },
        "test",
      );
      return closing(createTaskAdapter(config.providers[0] as EntryOf<"task">, depsWith())).takes;
    };
    expect(takesOf({})).toEqual({ maxReferences: 0, ratios: ["1:1"], tiers: ["1K"], options: [] });
    const body = {
      at: ["{width}", "{height}"],
      no: "{negative_prompt}",
      seed: "{seed}",
      image: "{reference2}",
    };
    expect(takesOf(body)).toEqual({
      ...{ maxReferences: 2, ratios: "any", tiers: "any", pixelsOf: expect.any(Function) },
      options: ["seed", "negativePrompt"],
    });
  });
});
