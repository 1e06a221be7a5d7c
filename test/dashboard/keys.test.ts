import { describe, expect, it } from "vitest";
import {
  imagesPerSecond,
  layoutOf,
  SORTS,
  selectedBatch,
  timeLeftMs,
  visibleBatches,
} from "../../src/dashboard/state.ts";
import { ALL_ABILITIES, applied, batchRow, itemRow, NOW, press, viewOf } from "./facts.ts";

const RUNNING = batchRow(1);
const ENDED = batchRow(2, { status: "completed", successCount: 9, failCount: 1, endedAtMs: 1 });
const CLEAN = batchRow(3, { status: "completed", successCount: 10, failCount: 0, endedAtMs: 1 });

it("g lets a batch go on that is stopped, and only such a batch", () => {
  const waiting = { code: "STOPPED", message: "go on with …", untilMs: null, said: null };
  const stopped = batchRow(4, { waiting });
  expect(press(viewOf([stopped]), "g").intents).toEqual([{ type: "go-on", batchId: stopped.id }]);
  expect(press(viewOf([RUNNING]), "g").intents).toEqual([]);
});

describe("moving", () => {
  const many = Array.from({ length: 40 }, (_, n) => batchRow(n));

  it("the cursor stays on its batch when others come and go", () => {
    const { state } = press(viewOf(many), "down", "down");
    const chosen = selectedBatch(state)?.id;
    const later = applied(state, { type: "batches", batches: [batchRow(99), batchRow(98)] });
    expect(selectedBatch(later)?.id).toBe(chosen);
    expect(visibleBatches(later).findIndex((row) => row.id === chosen)).toBe(4);
  });

  it("until a key is pressed, and after Home, the cursor is on the newest batch", () => {
    const view = applied(viewOf(many), { type: "batches", batches: [batchRow(99)] });
    expect(selectedBatch(view)?.id).toBe(batchRow(99).id);
    const home = applied(press(view, "down", "home").state, { type: "batches", batches: [batchRow(100)] });
    expect(selectedBatch(home)?.id).toBe(batchRow(100).id);
  });

  it("the cursor stays on its batch when the order moves it, and keys act on that one", () => {
    const [slow, quick] = [batchRow(1, { successCount: 1 }), batchRow(2, { successCount: 5 })];
    for (const keys of [
      ["s", "s"],
      ["s", "s", "home"],
    ]) {
      const { state } = press(viewOf([slow, quick]), ...keys);
      const chosen = selectedBatch(state);
      const others = [slow, quick].filter(({ id }) => id !== chosen?.id);
      const moved = applied(state, {
        type: "batches",
        batches: [
          ...others.map((row) => ({ ...row, successCount: 0 })),
          { ...quick, ...chosen, successCount: 8 },
        ],
      });
      expect(state.view.sort).toBe("progress");
      expect(visibleBatches(moved).at(-1)?.id).toBe(chosen?.id);
      expect(selectedBatch(moved)?.id).toBe(chosen?.id);
      expect(press(moved, "c", "y").intents).toEqual([{ type: "cancel", batchId: chosen?.id }]);
    }
  });

  it("another order keeps the cursor on its batch, and so does any key before a new batch comes", () => {
    const last = many[0]?.id;
    expect(selectedBatch(press(viewOf(many), "end", "s", "s", "s", "s").state)?.id).toBe(last);
    const top = selectedBatch(viewOf(many))?.id;
    const later = applied(press(viewOf(many), "l").state, { type: "batches", batches: [batchRow(99)] });
    expect(selectedBatch(later)?.id).toBe(top);
  });

  it("an open batch stays the one that keys act on when the filter no longer shows it", () => {
    const open = press(viewOf([RUNNING, batchRow(9)]), "/", ..."running", "enter", "end", "enter").state;
    const ended = applied(open, { type: "batches", batches: [batchRow(1, { status: "completed" })] });
    expect(visibleBatches(ended).map(({ id }) => id)).not.toContain(RUNNING.id);
    expect(selectedBatch(ended)?.id).toBe(RUNNING.id);
    expect(press(ended, "d", "r").intents).toEqual([{ type: "delete-record", batchId: RUNNING.id }]);
  });

  it("what is chosen can always be seen, and the list never scrolls past its end", () => {
    const keys = ["end", "up", "pageUp", "pageUp", "down", "home", "pageDown", "end", "pageDown", "down"];
    let state = viewOf(many);
    for (const key of keys) {
      ({ state } = press(state, key));
      const lines = layoutOf(state).batchLines;
      const index = visibleBatches(state).findIndex((row) => row.id === selectedBatch(state)?.id);
      expect(index).toBeGreaterThanOrEqual(state.view.top);
      expect(index).toBeLessThan(state.view.top + lines);
      expect(state.view.top).toBeLessThanOrEqual(many.length - lines);
    }
    expect(selectedBatch(state)?.id).toBe(many[0]?.id);
  });

  it("a window that shrinks keeps the chosen batch in view", () => {
    const { state } = press(viewOf(many), "pageDown");
    const small = applied(state, { type: "resize", columns: 60, rows: 10 });
    const index = visibleBatches(small).findIndex((row) => row.id === selectedBatch(small)?.id);
    expect(index - small.view.top).toBeLessThan(layoutOf(small).batchLines);
  });
});

describe("acting", () => {
  it("cancels only after a yes, and only what has not ended", () => {
    expect(press(viewOf([RUNNING]), "c").intents).toEqual([]);
    expect(press(viewOf([RUNNING]), "c", "n").intents).toEqual([]);
    expect(press(viewOf([RUNNING]), "c", "enter").intents).toEqual([]);
    expect(press(viewOf([RUNNING]), "c", "y").intents).toEqual([{ type: "cancel", batchId: RUNNING.id }]);
    const { state, intents } = press(viewOf([ENDED]), "c", "y");
    expect(intents).toEqual([]);
    expect(state.view.message?.text).toContain("ended");
  });

  it("asks about the batch that was chosen, also when another moves to its line", () => {
    const asked = press(viewOf([RUNNING]), "c").state;
    const moved = applied(asked, { type: "batches", batches: [batchRow(50)] });
    expect(press(moved, "y").intents).toEqual([{ type: "cancel", batchId: RUNNING.id }]);
  });

  it("deletes files or the record of an ended batch, by the letter that is pressed", () => {
    const view = viewOf([ENDED]);
    expect(press(view, "d", "o").intents).toEqual([{ type: "delete-outputs", batchId: ENDED.id }]);
    expect(press(view, "d", "r").intents).toEqual([{ type: "delete-record", batchId: ENDED.id }]);
    expect(press(view, "d", "y").intents).toEqual([]);
    expect(press(viewOf([RUNNING]), "d").state.view.question).toBeNull();
  });

  it("retries only what has failed and ended, and says why it does not", () => {
    expect(press(viewOf([ENDED]), "r").intents).toEqual([{ type: "retry", batchId: ENDED.id }]);
    expect(press(viewOf([CLEAN]), "r").state.view.message?.text).toContain("No item");
    expect(press(viewOf([RUNNING]), "r").intents).toEqual([]);
  });

  it("pauses and goes on, opens the folder and the web console", () => {
    const view = viewOf([RUNNING]);
    expect(press(view, "p").intents).toEqual([{ type: "pause", isPaused: true }]);
    const paused = applied(view, { type: "vitals", vitals: { isPaused: true } });
    expect(press(paused, "p").intents).toEqual([{ type: "pause", isPaused: false }]);
    expect(press(view, "o").intents).toEqual([{ type: "open-folder", batchId: RUNNING.id }]);
    expect(press(view, "w").intents).toEqual([{ type: "open-console" }]);
  });

  it("quits at once when nothing works, else after a yes; Ctrl-C quits always", () => {
    expect(press(viewOf([ENDED]), "q").intents).toEqual([{ type: "quit" }]);
    expect(press(viewOf([RUNNING]), "q").intents).toEqual([]);
    expect(press(viewOf([RUNNING]), "q", "y").intents).toEqual([{ type: "quit" }]);
    expect(press(viewOf([RUNNING]), "c", "interrupt").intents).toEqual([{ type: "quit" }]);
    const onlooker = { ...viewOf([RUNNING]), abilities: { ...ALL_ABILITIES, ownsService: false } };
    expect(press(onlooker, "q").intents).toEqual([{ type: "quit" }]);
  });

  it("what a source cannot do is answered with words", () => {
    const view = { ...viewOf([ENDED]), abilities: { ownsService: false, openConsole: false } };
    for (const key of ["p", "r", "w"]) {
      const { state, intents } = press(view, key);
      expect(intents).toEqual([]);
      expect(state.view.message?.text).toBeTruthy();
    }
  });
});

describe("looking", () => {
  it("the filter takes letters as text, also those that are keys, and finds names, ids, statuses", () => {
    const rows = [batchRow(1, { name: "quick fox" }), batchRow(2, { name: "Dog", status: "failed" })];
    const typed = press(viewOf(rows), "/", "q", "u");
    expect(typed.intents).toEqual([]);
    expect(visibleBatches(typed.state).map((row) => row.name)).toEqual(["quick fox"]);
    const backed = press(typed.state, "backspace", "backspace", "d", "O", "g", "enter");
    expect(visibleBatches(backed.state).map((row) => row.name)).toEqual(["Dog"]);
    expect(visibleBatches(press(viewOf(rows), "/", "f", "a", "i", "l").state)).toHaveLength(1);
    expect(visibleBatches(press(backed.state, "escape").state)).toHaveLength(2);
  });

  it("sorting goes round all orders and keeps every batch", () => {
    let state = viewOf([RUNNING, ENDED, CLEAN]);
    const seen = new Set<string>();
    for (const _ of SORTS) {
      ({ state } = press(state, "s"));
      seen.add(state.view.sort);
      expect(visibleBatches(state)).toHaveLength(3);
    }
    expect([...seen].sort()).toEqual([...SORTS].sort());
  });

  it("details open for the batch under the cursor, and close", () => {
    const { state, intents } = press(viewOf([RUNNING, ENDED]), "down", "enter");
    expect(intents).toEqual([{ type: "open-detail", batchId: RUNNING.id }]);
    expect(state.view.screen).toBe("detail");
    const back = press(state, "escape");
    expect(back.state.view.screen).toBe("batches");
    expect(back.intents).toEqual([{ type: "close-detail" }]);
  });

  it("images of successful items are shown, and the arrows skip the others", () => {
    const items = [itemRow(1), itemRow(2, { status: "failed", error: "no" }), itemRow(3)];
    const open = applied(press(viewOf([ENDED]), "enter").state, {
      type: "detail",
      detail: { batchId: ENDED.id, items, history: null },
    });
    const first = press(open, "v");
    const box = { widthPx: 80, heightPx: 44 };
    expect(first.intents).toEqual([{ type: "show-picture", batchId: ENDED.id, customId: "i1", box }]);
    expect(press(first.state, "down").intents).toMatchObject([{ type: "show-picture", customId: "i3" }]);
    expect(press(open, "down", "v").intents).toEqual([]);
    expect(press(first.state, "escape").state.view.screen).toBe("detail");
  });

  it("a deleted record leaves the list, and its details close", () => {
    const open = press(viewOf([RUNNING, ENDED]), "enter").state;
    const gone = applied(open, { type: "batch-gone", id: ENDED.id });
    expect(gone.view.screen).toBe("batches");
    expect(selectedBatch(gone)?.id).toBe(RUNNING.id);
  });
});

describe("the rate", () => {
  const at = (seconds: number) => ({ type: "tick", nowMs: NOW + seconds * 1000 }) as const;
  const made = (count: number) => ({ type: "images", count, atMs: NOW }) as const;
  /** So many images in each of the first seconds. */
  const working = (seconds: number, count: number, begin = viewOf([])) =>
    applied(begin, ...Array.from({ length: seconds }, (_, i) => [at(i + 1), made(count)]).flat());

  it("is the mean of the last full seconds, quiet ones too", () => {
    const state = applied(working(4, 3), at(5));
    expect(imagesPerSecond(state)).toBe(3);
    expect(imagesPerSecond(applied(state, at(9)))).toBe(12 / 8);
  });

  it("keeps a minute, survives a clock that goes back, and a long sleep", () => {
    const state = applied(working(1, 5), at(-3600), at(3600));
    expect(state.imagesBySecond).toHaveLength(60);
    expect(imagesPerSecond(state)).toBe(0);
  });

  it("gives the time that is left, or that it is unknown", () => {
    const start = applied(viewOf([]), { type: "vitals", vitals: { waitingItems: 10, runningItems: 2 } });
    expect(timeLeftMs(start)).toBeNull();
    const state = applied(working(3, 2, start), at(4));
    expect(timeLeftMs(state)).toBe(6000);
    const told = (vitals: object) => timeLeftMs(applied(state, { type: "vitals", vitals }));
    expect([told({ isPaused: true }), told({ waitingItems: 0, runningItems: 0 })]).toEqual([null, 0]);
  });
});
