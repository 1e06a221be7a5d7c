import { describe, expect, it } from "vitest";
import { FailedAuthLimit } from "../../src/server/failed-auth-limit.ts";
import { FakeClock } from "../support/fake-clock.ts";

describe("wrong keys without a configured limit", () => {
  it("[AUTH-5] are limited for other machines, each by itself, and not on this one", () => {
    const limit = new FailedAuthLimit(0, new FakeClock());
    for (let i = 0; i < 100; i++) {
      limit.note("127.0.0.1");
      limit.note("::ffff:127.0.0.1");
      limit.note("::1");
    }
    for (let i = 0; i < 30; i++) limit.note("192.0.2.1");
    expect(() => limit.note("192.0.2.1")).toThrow("Too many wrong keys");
    expect(() => limit.note("192.0.2.2")).not.toThrow();
  });
});
