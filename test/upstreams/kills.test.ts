import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { gate } from "../support/gate.ts";
import { Chain, type ChainBatch, isMarked, model } from "../support/upstreams/chain.ts";
import type { Behaviour, Exchange, FakeUpstream } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { NATIVE_KEY, nativeErrors } from "../support/upstreams/native.ts";
import { startFake } from "./services.ts";

const PROMPTS = Array.from({ length: 8 }, (_, at) => `picture ${at + 1}`);
const CONCURRENCY = 4;
const PATIENCE = { timeout: 30_000, interval: 20 };
const OTHER_KEY = "another-key-of-the-same-upstream";
const GRACE = ["--grace", "100ms"];

/** A paid upstream that behaves this way at first, and a provider and a model of its name. */
async function paid(name: string, behaviour: Behaviour) {
  const { fake, entry, model: upstreamId } = await startFake("native", { behaviour });
  const own = { apiKeyEnv: keyName(name), concurrency: CONCURRENCY, timeoutSeconds: 30 };
  const provider = { name, models: { [name]: upstreamId }, ...entry, ...own };
  return { fake, provider, model: model(name), key: { [keyName(name)]: NATIVE_KEY } };
}

const keyName = (name: string) => `${name.toUpperCase()}_API_KEY`;

const images = (fake: FakeUpstream) => fake.requests.filter(({ kind }) => kind === "images");

/** Resolves once the upstream has read this many requests for images. */
const arrived = (fake: FakeUpstream, count: number) =>
  vi.waitUntil(() => images(fake).filter(({ prompt }) => prompt !== null).length === count, PATIENCE);

const isWaiting = ({ waiting }: ChainBatch) => waiting != null;

describe("a service that is killed twice while its upstreams work, and later told to stop", () => {
  const worlds = new Map<string, Awaited<ReturnType<typeof paid>>>();
  const ids = new Map<string, string>();
  let chain: Chain;
  /** The prompts that `once` had read when the service was killed. */
  let sent: Set<string | null>;
  /** The requests to `billing` after each kill, and what its batch waited for before it. */
  const billing: { asked: number; waiting: ChainBatch["waiting"] }[] = [];
  /** Lets `stop` answer. */
  const mayAnswer = gate();

  const fakeOf = (name: string) => worlds.get(name)?.fake as FakeUpstream;
  const idOf = (name: string) => ids.get(name) ?? "";
  const submit = async (name: string, count: number) => {
    ids.set(name, (await chain.submit(name, PROMPTS.slice(0, count))).id);
  };
  const kill = async () => {
    const { waiting } = await chain.until(idOf("billing"), isWaiting);
    await chain.end("SIGKILL");
    billing.push({ asked: images(fakeOf("billing")).length, waiting });
  };

  beforeAll(async () => {
    const behaviours = {
      once: hostile.late(60_000, { made: true }),
      twice: hostile.late(60_000, { made: true }),
      billing: hostile.answers(nativeErrors.billing()),
      stop: async ({ make, send }: Exchange) => {
        const answer = await make();
        await mayAnswer.promise;
        send(answer);
      },
    };
    for (const [name, behaviour] of Object.entries(behaviours)) worlds.set(name, await paid(name, behaviour));
    const all = [...worlds.values()];
    const config = { models: all.map((one) => one.model), providers: all.map(({ provider }) => provider) };
    const keys = Object.assign({}, ...all.map(({ key }) => key));
    chain = await Chain.start(config, keys);

    await submit("once", PROMPTS.length);
    await submit("twice", CONCURRENCY);
    await submit("billing", 2);
    await arrived(fakeOf("once"), CONCURRENCY);
    await arrived(fakeOf("twice"), CONCURRENCY);
    await kill();
    sent = new Set(images(fakeOf("once")).map(({ prompt }) => prompt));
    fakeOf("once").setBehaviour(null);
    await chain.serve();

    await chain.until(idOf("once"));
    await arrived(fakeOf("twice"), 2 * CONCURRENCY);
    await kill();
    fakeOf("twice").setBehaviour(null);
    chain.env[keyName("billing")] = OTHER_KEY;
    fakeOf("billing").setBehaviour(hostile.answering({}));
    await chain.serve(GRACE);
  });

  afterAll(async () => {
    await chain?.close();
    for (const { fake } of worlds.values()) await fake.close();
  });

  it("asks once more for what it had sent, with a mark, and for nothing else twice", async () => {
    const fake = fakeOf("once");
    const batch = await chain.until(idOf("once"));
    expect(batch).toMatchObject({ status: "completed", success_count: PROMPTS.length });
    const items = await chain.items(batch.id);
    const seen = PROMPTS.map((prompt, at) => [
      prompt,
      fake.asked(prompt),
      isMarked(items[at] ?? { error: null }),
    ]);
    expect(seen).toEqual(PROMPTS.map((prompt) => [prompt, sent.has(prompt) ? 2 : 1, sent.has(prompt)]));
    expect((await chain.run(["admin", "check"])).code).toBe(0);
  });

  it("killed again during the second request, it does not send a third", async () => {
    expect(await chain.until(idOf("twice"))).toMatchObject({
      status: "completed",
      fail_count: CONCURRENCY,
      actual_cost: 0,
    });
    expect(images(fakeOf("twice"))).toHaveLength(2 * CONCURRENCY);
    for (const item of await chain.items(idOf("twice")))
      expect([item.status, isMarked(item)]).toEqual(["failed", true]);
  });

  it("asks an upstream that pauses for money once more after a start, and with another key", async () => {
    const [before, after] = billing;
    expect(before?.asked).toBeLessThanOrEqual(2);
    expect(after?.waiting).toMatchObject({ code: before?.waiting?.code });
    expect((after?.asked ?? 0) - (before?.asked ?? 0)).toBeLessThanOrEqual(2);
    const requests = () => images(fakeOf("billing"));
    await expect.poll(() => requests().length).toBeGreaterThan(after?.asked ?? 0);
    expect(requests().at(-1)?.headers["x-goog-api-key"]).toBe(OTHER_KEY);
  });

  it("told to stop, it waits for what it has sent, longer than its grace", async () => {
    const fake = fakeOf("stop");
    await submit("stop", PROMPTS.length);
    await arrived(fake, CONCURRENCY);
    const ended = chain.end("SIGTERM");
    // It says so when its grace is over.
    await expect.poll(() => chain.output).toContain("waiting for requests that are paid");
    mayAnswer.open();
    expect(await ended).toBe(0);
    expect(fake.billed()).toBe(CONCURRENCY);
    fake.setBehaviour(null);
    await chain.serve();
    expect(await chain.until(idOf("stop"))).toMatchObject({ success_count: PROMPTS.length });
    expect(PROMPTS.map((prompt) => fake.asked(prompt))).toEqual(PROMPTS.map(() => 1));
    expect((await chain.items(idOf("stop"))).filter(isMarked)).toEqual([]);
  });
});

describe("a service whose upstream does not answer", () => {
  it("ends a cancelled batch when the time of what is under way is over, and is asked for nothing more", async () => {
    const { fake, provider, model, key } = await paid("mine", hostile.hang);
    onTestFinished(() => fake.close());
    const chain = await Chain.startHere(
      { models: [model], providers: [{ ...provider, timeoutSeconds: 2 }] },
      key,
    );
    onTestFinished(() => chain.close());
    const { id } = await chain.submit("mine", PROMPTS);
    await arrived(fake, CONCURRENCY);
    await chain.ask(`/v1/images/batches/${id}/cancel`, { method: "POST" });
    const ended = { status: "cancelled", success_count: 0, actual_cost: 0 };
    expect(await chain.until(id)).toMatchObject(ended);
    await expect.poll(() => images(fake).filter(({ isAbandoned }) => isAbandoned).length).toBe(CONCURRENCY);
    expect(images(fake)).toHaveLength(CONCURRENCY);
  });
});
