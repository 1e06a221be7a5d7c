import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { ImgbatchError } from "../../src/contract/errors.ts";
import { type DirectOptions, direct } from "../../src/runs/direct.ts";
import { planRealtimeRun } from "../../src/runs/plan/plan.ts";
import { type FakeNative, startFakeNative } from "../support/fake-native.ts";
import { FAKE_KEY } from "../support/fake-service.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { tempDir } from "../support/temp-dir.ts";

async function make(options: DirectOptions) {
  const transport = direct(options);
  return transport.fetch(await transport.untilDone(await transport.send(), () => {}));
}

const INTERRUPTED = new ImgbatchError("INTERRUPTED");

async function prepare(prompts: string[]): Promise<{ fake: FakeNative; options: DirectOptions }> {
  const fake = await startFakeNative();
  onTestFinished(() => fake.close());
  const clock = new InstantClock();
  const http = createServiceHttp({ baseUrl: fake.url, apiKey: FAKE_KEY, clock, random: () => 0 });
  const items = prompts.map((prompt, index) => ({
    customId: null,
    prompt,
    outputCount: 1,
    references: [],
    metadata: null,
    fileLine: { file: "p.txt", line: index + 1 },
  }));
  const options = {
    plan: planRealtimeRun({ model: "vendorx-3-pro-image", options: {}, mimeType: null }, items),
    dir: join(await tempDir(), "out"),
    service: {
      http,
      identity: fake.url,
      keyFingerprint: "k",
      upstream: null,
      isLocal: true,
    },
    concurrency: 2,
    clock,
    reporter: { note() {}, detail() {}, progress() {} },
    costOf: () => null,
    isPlay: false,
  };
  return { fake, options };
}

it("a request whose image has come is not counted as under way when the run is interrupted", async () => {
  const { fake, options } = await prepare(["cat", "slow"]);
  fake.always(/slow/, { silent: true });
  const interruption = new AbortController();
  // The image is saved, and its request is over, at this moment.
  const event = ({ event }: { event: string }) => {
    if (event === "file_saved") interruption.abort(INTERRUPTED);
  };
  const reporter = { ...options.reporter, event };
  const outcome = await make({ ...options, reporter, signal: interruption.signal });
  expect(outcome.direct).toMatchObject({ stop: INTERRUPTED, abandonedCount: fake.requests.length - 1 });
  expect(outcome.lines.map(({ status }) => status)).toEqual(["success", "pending"]);
});

it("a request that waits for its turn has not left, and is not counted", async () => {
  const { fake, options } = await prepare(["cat"]);
  const interruption = new AbortController();
  const awaitTurnToSend = async () => {
    interruption.abort(INTERRUPTED);
    throw INTERRUPTED;
  };
  const outcome = await make({ ...options, awaitTurnToSend, signal: interruption.signal });
  expect(outcome.direct).toMatchObject({ stop: INTERRUPTED, abandonedCount: 0 });
  expect(fake.requests).toEqual([]);
});

const keysOf = (fake: FakeNative, prompt: string) =>
  fake.requests
    .filter((request) => request.prompt === prompt)
    .map(({ headers }) => headers["idempotency-key"]);

it("a run that goes on has the keys of images whose answers were lost, and new ones where it had an answer", async () => {
  const { fake, options } = await prepare(["lost", "refused", "slow", "made"]);
  fake.answer(/lost/, ...Array.from({ length: 4 }, () => ({ reset: true }) as const));
  fake.answer(/refused/, { body: { promptFeedback: { blockReason: "SAFETY" } } });
  fake.answer(/slow/, { silent: true });
  const interruption = new AbortController();
  const running = make({ ...options, concurrency: 1, signal: interruption.signal });
  await expect.poll(() => keysOf(fake, "slow").length).toBe(1);
  interruption.abort(INTERRUPTED);
  await running;
  const again = await make(options);
  expect(again.lines.map(({ status }) => status)).toEqual(Array(4).fill("success"));
  expect(new Set(keysOf(fake, "lost")).size).toBe(1);
  expect(new Set(keysOf(fake, "slow")).size).toBe(1);
  const [first, second, ...more] = keysOf(fake, "refused");
  expect(second).not.toBe(first);
  expect(more).toEqual([]);
  const all = ["lost", "refused", "slow", "made"].flatMap((prompt) => keysOf(fake, prompt));
  expect(new Set(all).size).toBe(5);
});
