import { expect, it } from "vitest";
import { RequestRate } from "../../../src/providers/upstream/provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const SECOND_MS = 1000;
const turn = () => new Promise((resolve) => setImmediate(resolve));
const never = new AbortController().signal;

function counted(rate: RequestRate, clock: FakeClock) {
  const begunMs = clock.nowMs();
  const startsS: number[] = [];
  const ask = (signal = never) => {
    const started = rate.wait(signal).then(() => {
      startsS.push((clock.nowMs() - begunMs) / SECOND_MS);
    });
    return started.catch(() => {});
  };
  const pass = async (seconds: number) => {
    await turn();
    for (let second = 0; second < seconds; second++) {
      clock.advance(SECOND_MS);
      await turn();
    }
  };
  return { startsS, ask, pass };
}

it("no more requests start in any minute than the limit", async () => {
  const clock = new FakeClock();
  const { startsS, ask, pass } = counted(new RequestRate(2, clock), clock);
  void ask();
  await pass(10);
  for (let i = 0; i < 4; i++) void ask();
  await pass(200);
  expect(startsS).toEqual([0, 10, 60, 70, 120]);
  void ask();
  await pass(1);
  expect(startsS.at(-1)).toBe(210);
});

it("a request that is taken back leaves its place to the next one", async () => {
  const clock = new FakeClock();
  const { startsS, ask, pass } = counted(new RequestRate(1, clock), clock);
  void ask();
  const back = new AbortController();
  const gone = [ask(back.signal), ask(back.signal), ask(back.signal)];
  await pass(5);
  back.abort();
  await Promise.all(gone);
  void ask();
  void ask();
  await pass(120);
  expect(startsS).toEqual([0, 60, 120]);
});
