import { expect, it } from "vitest";
import { ProviderSlots } from "../../../src/workers/items/provider-slots.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider } from "../../support/fake-provider.ts";
import { FakeUpstream } from "../../support/fake-upstream.ts";
import { gate } from "../../support/gate.ts";

const MIB = 2 ** 20;

it("[SLOT-4] no more requests are sent while too many images wait to be stored, or too large ones", async () => {
  const slots = new ProviderSlots(new FakeProvider({ concurrency: 2 }), new FakeClock());
  const stored = [300 * MIB, ...Array<number>(9).fill(1)].map((bytes) => {
    const work = gate();
    return { bytes, ...work };
  });
  let ended = 0;
  const begin = (at: number) => {
    const image = stored[at];
    if (image) slots.record(image.promise, image.bytes, () => ended++);
  };
  begin(0);
  expect(slots.free).toBe(0);
  stored[0]?.open();
  await expect.poll(() => ended).toBe(1);
  expect(slots.free).toBe(2);
  for (let at = 1; at <= 8; at++) begin(at);
  expect(slots.free).toBe(2);
  begin(9);
  expect(slots.free).toBe(0);
  for (const { open } of stored) open();
  await slots.idle();
  expect([ended, slots.free]).toEqual([10, 2]);
});

it("[SLOT-4] no more paid images wait to be stored than the provider has slots", async () => {
  const slots = new ProviderSlots(new FakeUpstream("paid", { concurrency: 2 }), new FakeClock());
  const stored = [gate(), gate(), gate()];
  const free = stored.map(({ promise }) => {
    slots.record(promise, 1, () => {});
    return slots.free;
  });
  expect(free).toEqual([2, 2, 0]);
  for (const { open } of stored) open();
  await slots.idle();
});

it("[SLOT-7] items ahead are claimed again when half of them have a slot", async () => {
  const clock = new FakeClock();
  const slots = new ProviderSlots(new FakeProvider({ concurrency: 4 }), clock);
  await slots.claim(async () => clock.advance(10));
  await slots.takePlace().run(new AbortController().signal, async () => clock.advance(8));
  const requests = Array.from({ length: 8 }, () => gate());
  const free = requests.map(({ promise }) => {
    slots.begin(promise, () => {});
    return slots.free;
  });
  expect(free).toEqual([7, 6, 5, 4, 3, 2, 0, 0]);
  for (const { open } of requests.slice(0, 3)) open();
  await expect.poll(() => slots.free).toBe(3);
  for (const { open } of requests) open();
  await slots.idle();
});

it("[SLOT-10] slots are given in the order of the places, also to those that ask earlier", async () => {
  const slots = new ProviderSlots(new FakeProvider({ concurrency: 1 }), new FakeClock());
  const { signal } = new AbortController();
  const [first, left, third, last] = Array.from({ length: 4 }, () => slots.takePlace());
  const order: string[] = [];
  const enter = (name: string) => async () => void order.push(name);
  const entered = [last?.run(signal, enter("last")), third?.run(signal, enter("third"))];
  left?.leave();
  entered.push(first?.run(signal, enter("first")));
  await Promise.all(entered);
  expect(order).toEqual(["first", "third", "last"]);
});
