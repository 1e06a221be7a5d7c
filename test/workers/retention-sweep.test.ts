import { describe, expect, it } from "vitest";
import { SetbackClock } from "../support/fake-clock.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../support/service.ts";

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;
/** Less often than by default, so that a whole retention is a few sweeps. */
const SWEEP_MS = 2 * HOUR_MS;
const config = { retention: { sweepMinutes: SWEEP_MS / 60_000 } };
/** The default of `retention.outputHours`. */
const RETENTION_MS = 72 * HOUR_MS;

const start = (options: { clock: SetbackClock; data?: string; logLines?: string[] }): Promise<TestService> =>
  startTestService({ config, ...options });

/** Sweeps so often, `SWEEP_MS` apart; each has ended when this resolves. */
async function sweeps(clock: SetbackClock, count: number): Promise<void> {
  const isAsleep = () => expect.poll(() => clock.nextWakeInMs, { interval: 2 }).toBe(SWEEP_MS);
  await isAsleep();
  for (let i = 0; i < count; i++) {
    clock.advance(SWEEP_MS);
    await isAsleep();
  }
}

/** A data directory with a completed batch, whose service ended at `clock.nowMs()`. */
async function earlierRun(startMs?: number) {
  const clock = new SetbackClock(startMs);
  const service = await start({ clock });
  const { id } = await service.submit({ model: MODEL, items: items(1) });
  await service.until(id);
  await sweeps(clock, 1);
  await service.close(0);
  return { data: service.data, id, endMs: clock.nowMs() };
}

describe("the first start with another clock", () => {
  it.each([
    ["a hundred hours", 100 * HOUR_MS],
    ["ten years", 10 * YEAR_MS],
  ])(
    "a clock %s ahead deletes nothing, even after new batches, and logs why; the right clock goes on",
    async (_, aheadMs) => {
      const { data, id, endMs } = await earlierRun();
      const clock = new SetbackClock(endMs + aheadMs);
      const logLines: string[] = [];
      const service = await start({ data, clock, logLines });
      const own = await service.submit({ model: MODEL, items: items(1) });
      await service.until(own.id);
      await sweeps(clock, 10);
      expect((await service.batch(id)).status).toBe("completed");
      expect(logLines.join("")).toContain("the clock has jumped by more than the retention");
      const metrics = await (await fetch(`${service.url}/metrics`)).text();
      expect(metrics).toContain(
        `imgbatch_retention_paused_until_timestamp_seconds ${(endMs + aheadMs + RETENTION_MS) / 1000}\n`,
      );
      await service.close(0);

      const still = new SetbackClock(clock.nowMs());
      const second = await start({ data, clock: still });
      await sweeps(still, 10);
      expect((await second.batch(id)).status).toBe("completed");
      await second.close(0);

      const right = new SetbackClock(endMs + 10 * HOUR_MS);
      const third = await start({ data, clock: right });
      await sweeps(right, 10);
      expect((await third.batch(id)).status).toBe("completed");
      await sweeps(right, RETENTION_MS / SWEEP_MS);
      expect((await third.batch(id)).status).toBe("output_deleted");
    },
  );

  it("after a month without power, outputs are deleted when a whole retention has passed, over several starts", async () => {
    const { data, id, endMs } = await earlierRun();
    let nowMs = endMs + 30 * 24 * HOUR_MS;
    for (const hours of [40, 26]) {
      const clock = new SetbackClock(nowMs);
      const service = await start({ data, clock });
      await sweeps(clock, (hours * HOUR_MS) / SWEEP_MS);
      expect((await service.batch(id)).status).toBe("completed");
      await service.close(0);
      nowMs = clock.nowMs() + HOUR_MS;
    }
    const clock = new SetbackClock(nowMs);
    const service = await start({ data, clock });
    await sweeps(clock, 2);
    await service.until(id, "output_deleted");
  });

  it("a clock that is behind deletes nothing, and the right clock keeps its batches for their whole time", async () => {
    const { data, id, endMs } = await earlierRun();
    const clock = new SetbackClock(endMs - 10 * YEAR_MS);
    const service = await start({ data, clock });
    const own = await service.submit({ model: MODEL, items: items(1) });
    await service.until(own.id);
    await sweeps(clock, 3);
    clock.set(10 * YEAR_MS);
    await sweeps(clock, 3);
    await service.close(0);
    const right = new SetbackClock(clock.nowMs());
    const second = await start({ data, clock: right });
    await sweeps(right, 3);
    for (const each of [id, own.id]) expect((await second.batch(each)).status).toBe("completed");
    await sweeps(right, RETENTION_MS / SWEEP_MS);
    for (const each of [id, own.id]) expect((await second.batch(each)).status).toBe("output_deleted");
  });

  it("the second look deletes due outputs, and the first look deletes none", async () => {
    const { data, id, endMs } = await earlierRun();
    const clock = new SetbackClock(endMs + RETENTION_MS);
    const first = await start({ data, clock });
    await sweeps(clock, 0);
    expect((await first.batch(id)).status).toBe("completed");
    await sweeps(clock, 1);
    expect((await first.batch(id)).status).toBe("output_deleted");
  });
});

describe("a service that ends with its command", () => {
  const DAY_MS = 24 * HOUR_MS;
  /** The data directory of a command that made a batch, and a function that runs another command at a time after it. */
  async function commands() {
    const clock = new SetbackClock();
    const service = await startTestService({ config, clock, endsWithCommand: true });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await service.goOn(id);
    await service.until(id);
    await service.close(5000);
    const run = async (afterMs: number) => {
      const later = new SetbackClock(clock.nowMs() + afterMs);
      const command = await startTestService({
        config,
        data: service.data,
        clock: later,
        endsWithCommand: true,
      });
      await sweeps(later, 0);
      await command.close(5000);
      const { stores, close } = await openBeside(service.data);
      const status = (await stores.read.batches.byId(id))?.status;
      await close();
      return status;
    };
    return { run, data: service.data };
  }

  it("keeps images for 30 days, and deletes at its end what an earlier command has found due", async () => {
    const { run } = await commands();
    expect(await run(4 * DAY_MS)).toBe("completed");
    expect(await run(29 * DAY_MS)).toBe("completed");
    expect(await run(31 * DAY_MS)).toBe("completed");
    expect(await run(31 * DAY_MS + HOUR_MS)).toBe("completed");
    expect(await run(31 * DAY_MS + 3 * HOUR_MS)).toBe("output_deleted");
  });

  it("deletes nothing where a service was started on the same data: its configuration decides", async () => {
    const { run, data } = await commands();
    const service = await startTestService({ config, data, clock: new SetbackClock() });
    await service.close(0);
    expect(await run(31 * DAY_MS)).toBe("completed");
    expect(await run(32 * DAY_MS)).toBe("completed");
  });

  it("deletes also where commands are months apart", async () => {
    const { run } = await commands();
    expect(await run(60 * DAY_MS)).toBe("completed");
    expect(await run(120 * DAY_MS)).toBe("output_deleted");
  });

  it("deletes nothing by a clock that is wrong for some commands", async () => {
    const { run } = await commands();
    expect(await run(400 * DAY_MS)).toBe("completed");
    expect(await run(401 * DAY_MS)).toBe("completed");
    expect(await run(2 * DAY_MS)).toBe("completed");
  });
});
