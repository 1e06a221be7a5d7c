import { describe, expect, it, onTestFinished } from "vitest";
import { Chain, isMarked, model } from "../support/upstreams/chain.ts";
import type { Behaviour, FakeUpstream } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { SMALL } from "../support/upstreams/images.ts";
import { nativeErrors, startNative } from "../support/upstreams/native.ts";

const PROMPTS = Array.from({ length: 8 }, (_, at) => `picture ${at + 1}`);
const CONCURRENCY = 4;

/** A service, served with these arguments, with one paid upstream that behaves this way at first. */
async function started(behaviour: Behaviour | null, args: readonly string[] = []) {
  const fake = await startNative();
  fake.size = SMALL;
  onTestFinished(() => fake.close());
  fake.setBehaviour(behaviour);
  const provider = {
    ...{ name: "paid", type: "native", baseUrl: fake.url, concurrency: CONCURRENCY, timeoutSeconds: 30 },
    ...{ apiKeyEnv: "NATIVE_API_KEY", keyHeader: "x-goog-api-key", models: { mine: "gemini-3-pro-image" } },
  };
  const chain = await Chain.start({ models: [model("mine")], providers: [provider] }, {}, args);
  onTestFinished(() => chain.close());
  return { fake, chain };
}

const images = (fake: FakeUpstream) => fake.requests.filter(({ kind }) => kind === "images");

/** Resolves once the upstream has read so many requests for images. */
const arrived = (fake: FakeUpstream, count: number) =>
  expect.poll(() => images(fake).filter(({ prompt }) => prompt !== null).length).toBe(count);

describe("a service that is killed while its upstream works", () => {
  it("[CHAIN-10] asks once more for what it had sent, with a mark, and for nothing else twice", async () => {
    const { fake, chain } = await started(hostile.late(60_000, { made: true }));
    const { id } = await chain.submit("mine", PROMPTS);
    await arrived(fake, CONCURRENCY);
    await chain.end("SIGKILL");
    const sent = new Set(images(fake).map(({ prompt }) => prompt));
    fake.setBehaviour(null);
    await chain.serve();
    const batch = await chain.until(id);
    expect(batch).toMatchObject({ status: "completed", success_count: PROMPTS.length });
    const items = await chain.items(id);
    const seen = PROMPTS.map((prompt, at) => [
      prompt,
      fake.asked(prompt),
      isMarked(items[at] ?? { error: null }),
    ]);
    expect(seen).toEqual(PROMPTS.map((prompt) => [prompt, sent.has(prompt) ? 2 : 1, sent.has(prompt)]));
    expect((await chain.run(["admin", "check"])).code).toBe(0);
  });

  it("[CHAIN-10] killed again during the second request, it does not send a third", async () => {
    const { fake, chain } = await started(hostile.late(60_000, { made: true }));
    const { id } = await chain.submit("mine", PROMPTS.slice(0, CONCURRENCY));
    await arrived(fake, CONCURRENCY);
    await chain.end("SIGKILL");
    await chain.serve();
    await arrived(fake, 2 * CONCURRENCY);
    await chain.end("SIGKILL");
    fake.setBehaviour(null);
    await chain.serve();
    expect(await chain.until(id)).toMatchObject({
      status: "completed",
      fail_count: CONCURRENCY,
      actual_cost: 0,
    });
    expect(images(fake)).toHaveLength(2 * CONCURRENCY);
    for (const item of await chain.items(id)) expect([item.status, isMarked(item)]).toEqual(["failed", true]);
  });

  it("[CHAIN-11] told to stop, it waits for what it has sent, longer than its grace", async () => {
    const { fake, chain } = await started(hostile.late(2500), ["--grace", "100ms"]);
    const { id } = await chain.submit("mine", PROMPTS);
    await arrived(fake, CONCURRENCY);
    expect(await chain.end("SIGTERM")).toBe(0);
    expect(fake.billed()).toBe(CONCURRENCY);
    fake.setBehaviour(null);
    await chain.serve();
    expect(await chain.until(id)).toMatchObject({ success_count: PROMPTS.length });
    expect(PROMPTS.map((prompt) => fake.asked(prompt))).toEqual(PROMPTS.map(() => 1));
    expect((await chain.items(id)).filter(isMarked)).toEqual([]);
  });

  it("[CHAIN-14] does not ask an upstream again before its time, unless it has another key", async () => {
    const { fake, chain } = await started(hostile.answers(nativeErrors.billing()));
    const { id } = await chain.submit("mine", PROMPTS.slice(0, 2));
    const { waiting } = await chain.until(id, (batch) => batch.waiting != null);
    await chain.end("SIGKILL");
    const before = images(fake).length;
    expect(before).toBeLessThanOrEqual(2);
    fake.setBehaviour(null);
    await chain.serve();
    expect(await chain.until(id, (batch) => batch.waiting != null)).toMatchObject({ waiting });
    expect(images(fake)).toHaveLength(before);
    await chain.end("SIGTERM");
    chain.env.NATIVE_API_KEY = "another-key-of-the-same-upstream";
    fake.setBehaviour(hostile.answering({}));
    await chain.serve();
    await expect.poll(() => images(fake).length).toBeGreaterThan(before);
    const [last] = images(fake).slice(-1);
    expect(last?.headers["x-goog-api-key"]).toBe(chain.env.NATIVE_API_KEY);
  });

  it("[CHAIN-16] breaks off what is under way when the batch is cancelled, and asks for nothing more", async () => {
    const { fake, chain } = await started(hostile.hang);
    const { id } = await chain.submit("mine", PROMPTS);
    await arrived(fake, CONCURRENCY);
    const answer = await chain.ask(`/v1/images/batches/${id}/cancel`, { method: "POST" });
    expect(await answer.json()).toMatchObject({ status: "cancelled", success_count: 0, actual_cost: 0 });
    await expect.poll(() => images(fake).filter(({ isAbandoned }) => isAbandoned).length).toBe(CONCURRENCY);
    expect(images(fake)).toHaveLength(CONCURRENCY);
  });
});
