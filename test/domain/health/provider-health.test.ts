import { describe, expect, it } from "vitest";
import { ProviderHealth } from "../../../src/domain/health/provider-health.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { SetbackClock } from "../../support/fake-clock.ts";
import { FakeUpstream, troubled } from "../../support/fake-provider.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const limited = troubled("limited", { retryAfterMs: MINUTE_MS });

function start() {
  const clock = new SetbackClock();
  const provider = new FakeUpstream("own");
  const health = new ProviderHealth({ clock, log: silentLog }, [provider]);
  const isAsked = () => health.blockOf(provider, "m") === null;
  return { clock, provider, health, isAsked };
}

describe("the health of a provider in a process", () => {
  it("[HEALTH-1] a fault while a result is noted is not the fault of its item: nothing throws", () => {
    const { provider, health } = start();
    health.onChange(() => {
      throw new Error("a listener has failed");
    });
    health.begin(provider, "m")?.failed(limited, "1");
    expect(health.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
  });

  it("[HEALTH-8] a provider that is resumed is asked at once, and its listeners learn of it", () => {
    const { provider, health, isAsked } = start();
    for (const trouble of ["credential", "limited"] as const)
      health.begin(provider, "m")?.failed(troubled(trouble, { retryAfterMs: MINUTE_MS }), "1");
    const changes: string[] = [];
    health.onChange(() => changes.push("change"));
    expect([isAsked(), health.resume("own"), isAsked(), changes]).toEqual([false, true, true, ["change"]]);
    expect(health.troublesOf(provider)).toEqual([]);
    expect(health.resume("another")).toBe(false);
  });

  it("[HEALTH-9] a pause that began while the clock was ahead lasts no longer than its own time", () => {
    const { clock, provider, health, isAsked } = start();
    clock.set(400 * DAY_MS);
    health.begin(provider, "m")?.failed(limited, "1");
    clock.set(-400 * DAY_MS);
    expect(health.blockOf(provider, "m")?.untilMs).toBe(clock.nowMs() + MINUTE_MS);
    clock.advance(MINUTE_MS - 1);
    expect(isAsked()).toBe(false);
    clock.advance(1);
    expect(isAsked()).toBe(true);
  });

  it("[HEALTH-8] what an earlier process has met lets one request go first, and nothing waits for its pause", () => {
    const { clock, provider, health, isAsked } = start();
    const untilMs = clock.nowMs() + DAY_MS;
    const waiting = { code: "PROVIDER_BILLING", message: "own: has no money.", untilMs } as const;
    health.askOnceFirst(provider, "m", waiting);
    const first = health.begin(provider, "m");
    expect([first?.isProbe, isAsked(), health.begin(provider, "m")]).toEqual([true, false, null]);
    first?.succeeded();
    expect([isAsked(), health.begin(provider, "m")?.isProbe]).toEqual([true, false]);
    health.askOnceFirst(provider, "m", waiting);
    expect(health.begin(provider, "m")?.isProbe).toBe(false);
  });

  it("[HEALTH-11] a refusal of one model leaves the other models alone; a refusal of the key stops all", () => {
    const { provider, health, isAsked } = start();
    health.begin(provider, "other")?.failed(troubled("forbidden", { isOfModel: true }), "1");
    expect([isAsked(), health.blockOf(provider, "other")?.trouble]).toEqual([true, "forbidden"]);
    expect(health.troublesOf(provider)).toMatchObject([{ model: "other", trouble: "forbidden" }]);
    health.begin(provider, "m")?.failed(troubled("forbidden"), "2");
    expect([isAsked(), health.blockOf(provider, "third")?.trouble]).toEqual([false, "forbidden"]);
  });

  it("[HEALTH-1] the pause after that first request is as long as any first pause", () => {
    const { clock, provider, health } = start();
    const waiting = { code: "PROVIDER_BILLING", message: "own: has no money.", untilMs: null } as const;
    health.askOnceFirst(provider, "m", waiting);
    health.begin(provider, "m")?.failed(troubled("billing"), "1");
    expect(health.blockOf(provider, "m")?.untilMs).toBe(clock.nowMs() + 10 * MINUTE_MS);
  });
});
