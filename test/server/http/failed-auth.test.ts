import { expect, it } from "vitest";
import { FailedAuthLimit } from "../../../src/server/http/limits.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const limitOf = (perMinute: number) => {
  const limit = new FailedAuthLimit(perMinute, new FakeClock(), { countsLoopback: true });
  return (address: string) => {
    try {
      limit.note(address);
      return true;
    } catch {
      return false;
    }
  };
};

it("counts the addresses of IPv6 that one caller has as one, and those of others apart", () => {
  const note = limitOf(2);
  expect([note("2001:db8:0:1::1"), note("2001:db8::1:0:0:0:2"), note("2001:db8:0:1:9:9:9:9")]).toEqual([
    true,
    true,
    false,
  ]);
  expect([note("2001:db8:0:2::1"), note("203.0.113.1"), note("203.0.113.2")]).toEqual([true, true, true]);
  expect([note("::ffff:203.0.113.1"), note("203.0.113.1")]).toEqual([true, false]);
});

it("keeps no more than 10,000 counters a minute: all further addresses share one", () => {
  const note = limitOf(2);
  for (let i = 0; i < 10_000; i++) note(`2001:db8:${i.toString(16)}::1`);
  const beyond = [1, 2, 3].map((i) => note(`2001:db9:${i}::1`));
  expect(beyond).toEqual([true, true, false]);
  expect(note("2001:db8:5::1")).toBe(true);
});
