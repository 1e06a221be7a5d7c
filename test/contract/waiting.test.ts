import { describe, expect, it } from "vitest";
import { jobsText, named, unnamed, waitingText } from "../../src/contract/waiting.ts";
import { waitingOn } from "../../src/domain/health/waiting.ts";
import { clockTime } from "../../src/kernel/durations.ts";

describe("the message about a provider", () => {
  it.each([
    ["of an upstream on HTTP", "local could not be reached (ECONNREFUSED)."],
    ["named before", "local: could not be reached (ECONNREFUSED)."],
    ["without the name", "could not be reached (ECONNREFUSED)."],
  ])("names it once: %s", (_case, message) => {
    expect(named("local", message)).toBe("local: could not be reached (ECONNREFUSED).");
    expect(unnamed("local", message)).toBe("could not be reached (ECONNREFUSED).");
    const block = { provider: "local", trouble: "unreachable", message, untilMs: null } as const;
    expect(waitingText(waitingOn(block))).toBe("waiting for local: could not be reached (ECONNREFUSED)");
  });

  it("says when the next try is", () => {
    const untilMs = Date.now();
    const message = "google could not be reached (ENOTFOUND).";
    const block = { provider: "google", trouble: "unreachable", message, untilMs } as const;
    expect(waitingText(waitingOn(block))).toBe(
      `waiting for google: could not be reached (ENOTFOUND); next try at ${clockTime(untilMs)}`,
    );
  });

  it("keeps a word that only begins like the name", () => {
    expect(named("local", "localhost is down.")).toBe("local: localhost is down.");
  });
});

it("jobs are described by their number, and the state and age of the oldest", () => {
  const job = (state: string, createdAtMs: number) => ({ state, createdAtMs });
  expect(jobsText([], 0)).toBeNull();
  expect(jobsText([job("PENDING", 0)], 720_000)).toBe("upstream job PENDING for 12 min");
  const jobs = [job("RUNNING", 60_000), job("PENDING", 0)];
  expect(jobsText(jobs, 7_200_000)).toBe("2 upstream jobs, the oldest PENDING for 2 h");
});
