import { describe, expect, it } from "vitest";
import { recordCalls } from "../../../src/domain/health/calls.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeUpstream, troubled } from "../../support/fake-provider.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";

const MINUTE_MS = 60_000;
const config = {
  models: [
    { id: MODEL, prices: { "1K": 0 } },
    { id: "other", prices: { "1K": 0 } },
  ],
};

/** The numbers of providers: the name without its prefix, and the labels → value. */
async function numbersOf({ url }: TestService): Promise<Record<string, number>> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const lines = [...text.matchAll(/^imgbatch_provider_(\S+) (\S+)$/gm)];
  return Object.fromEntries(lines.map(([, name = "", value]) => [name, Number(value)]));
}

const call = {
  provider: "vendor",
  model: MODEL,
  images: 1,
  isError: false,
  isMaybePaidTwice: true,
  billedMicroUsd: 40_000,
  usage: { inputTokens: 3, outputTokens: 5, costMicroUsd: 30_000 },
};
const label = `{provider="vendor",model="${MODEL}"}`;
const state = (model: string, word: string) => `state{provider="vendor",model="${model}",state="${word}"}`;

describe("the numbers of providers", () => {
  it("show the state of a provider for each of its models", async () => {
    const upstream = new FakeUpstream("vendor", { modelFor: (id) => (id === MODEL ? "theirs" : null) });
    upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs: 90_000 }));
    const service = await startTestService({ providers: [upstream], config });
    expect(await numbersOf(service)).toMatchObject({ [state(MODEL, "ok")]: 1, [state(MODEL, "cooling")]: 0 });
    await service.submit({ model: MODEL, items: items(1) });
    await expect
      .poll(() => numbersOf(service))
      .toMatchObject({
        [state(MODEL, "cooling")]: 1,
        [state(MODEL, "ok")]: 0,
        [state(MODEL, "disabled")]: 0,
        [`requests_total${label}`]: 1,
        [`errors_total${label}`]: 1,
      });
    const numbers = await numbersOf(service);
    expect(Object.keys(numbers).filter((name) => name.includes("other"))).toEqual([]);
  });

  it("count on over restarts, late in a stretch of time and after it, and for configured names only", async () => {
    const clock = new FakeClock();
    const providers = [new FakeUpstream("vendor")];
    const service = await startTestService({ providers, config, clock });
    const { stores } = await openBeside(service.data);
    const record = (more: object = {}) =>
      stores.write((tx) => recordCalls(tx, [{ ...call, ...more }], clock.nowMs()));
    expect(await numbersOf(service)).toMatchObject({ [`requests_total${label}`]: 0 });
    for (let n = 1; n <= 4; n++) {
      await record();
      expect(await numbersOf(service)).toMatchObject({ [`requests_total${label}`]: n });
      clock.advance(4 * MINUTE_MS);
    }
    clock.advance(60 * MINUTE_MS);
    await record({ provider: "gone" });
    await record({ model: "gone" });
    const expected = {
      [`requests_total${label}`]: 4,
      [`images_total${label}`]: 4,
      [`errors_total${label}`]: 0,
      [`may_be_paid_twice_total${label}`]: 4,
      [`billed_usd_total${label}`]: 0.16,
      [`upstream_cost_usd_total${label}`]: 0.12,
      'requests_total{provider="vendor",model="other"}': 0,
    };
    const numbers = await numbersOf(service);
    expect(numbers).toMatchObject(expected);
    expect(Object.keys(numbers).filter((name) => name.includes("gone"))).toEqual([]);
    await service.close(0);
    const again = await startTestService({ providers, config, clock, data: service.data });
    expect(await numbersOf(again)).toMatchObject(expected);
  });
});
