import { describe, expect, it } from "vitest";
import type { DashboardSource, Fact, Intent } from "../../src/dashboard/model.ts";
import { DashboardSession } from "../../src/dashboard/session.ts";
import type { DashboardState } from "../../src/dashboard/state.ts";
import { ALL_ABILITIES, batchRow, NOW } from "./facts.ts";

function begin(perform: (intent: Intent) => Promise<void> = async () => {}) {
  let tell: (fact: Fact) => void = () => {};
  const asked: Intent[] = [];
  const shown: DashboardState[] = [];
  const clock = { nowMs: NOW };
  const counts = { stops: 0, quits: 0 };
  const source: DashboardSource = {
    abilities: ALL_ABILITIES,
    start: (listener) => {
      tell = listener;
      return () => void counts.stops++;
    },
    perform: (intent) => {
      asked.push(intent);
      return perform(intent);
    },
  };
  const session = new DashboardSession(source, {
    columns: 80,
    rows: 24,
    nowMs: () => clock.nowMs,
    show: (state) => shown.push(state),
    onQuit: () => counts.quits++,
  });
  return { session, tell: (fact: Fact) => tell(fact), asked, shown, clock, counts };
}

describe("a session", () => {
  it("shows many changes as one frame, and a frame without changes not at all", () => {
    const { session, tell, shown } = begin();
    for (let n = 0; n < 100; n++) tell({ type: "batches", batches: [batchRow(n % 5, { successCount: n })] });
    expect(shown).toHaveLength(0);
    session.frame();
    expect(shown).toHaveLength(1);
    expect(shown[0]?.batches.size).toBe(5);
    session.frame();
    expect(shown).toHaveLength(1);
  });

  it("has in its first state what the source tells at once", () => {
    const source: DashboardSource = {
      abilities: ALL_ABILITIES,
      start: (listener) => {
        listener({ type: "batches", batches: [batchRow(1)] });
        return () => {};
      },
      perform: async () => {},
    };
    const [show, onQuit] = [() => {}, () => {}];
    const session = new DashboardSession(source, { columns: 80, rows: 24, nowMs: () => NOW, show, onQuit });
    expect(session.state.batches.size).toBe(1);
  });

  it("shows the passing time once a second", () => {
    const { session, shown, clock } = begin();
    clock.nowMs += 400;
    session.frame();
    expect(shown).toHaveLength(0);
    clock.nowMs += 700;
    session.frame();
    expect(shown).toHaveLength(1);
  });

  it("shows a key at once, takes what it asks to the source, and quits by itself", () => {
    const { session, tell, asked, shown, counts } = begin();
    tell({ type: "batches", batches: [batchRow(1)] });
    session.frame();
    session.now({ type: "key", key: { name: "enter" } });
    expect(shown).toHaveLength(2);
    expect(asked).toEqual([{ type: "open-detail", batchId: batchRow(1).id }]);
    session.now({ type: "key", key: { name: "interrupt" } });
    expect(counts.quits).toBe(1);
    expect(asked).toHaveLength(1);
    session.stop();
    expect(counts.stops).toBe(1);
  });

  it("tells the person why something could not be done", async () => {
    const { session, shown } = begin(async () => {
      throw new Error("the disk is full");
    });
    session.now({ type: "key", key: { name: "char", text: "p" } });
    await new Promise((resolve) => setImmediate(resolve));
    session.frame();
    expect(shown.at(-1)?.view.message).toMatchObject({ text: "the disk is full", isError: true });
  });
});
