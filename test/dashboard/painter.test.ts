import fc from "fast-check";
import stringWidth from "string-width";
import { describe, expect, it } from "vitest";
import type { DashboardSource, Fact, Intent } from "../../src/dashboard/model.ts";
import { FrameStream, Painter } from "../../src/dashboard/show.tsx";
import { DashboardSession, type DashboardState } from "../../src/dashboard/state.ts";
import { bar, dollars, inCells, sparkline } from "../../src/dashboard/text.ts";
import { CHARACTER } from "../support/characters.ts";
import { ALL_ABILITIES, batchRow, NOW } from "./facts.ts";

function paintOn(rows = 24) {
  const written: string[] = [];
  const painter = new Painter({
    columns: 80,
    rows,
    write: (text: string) => written.push(text) > 0,
  } as never);
  return { painter, written };
}

describe("the painter", () => {
  it("[VIEW-1] uses the terminal's second screen and gives the first one back, once", () => {
    const { painter, written } = paintOn();
    painter.open();
    painter.close();
    painter.close();
    const all = written.join("");
    expect(all.split("\x1b[?1049h")).toHaveLength(2);
    expect(all.split("\x1b[?1049l")).toHaveLength(2);
    expect(all.endsWith("\x1b[?25h\x1b[?1049l")).toBe(true);
  });

  it("[VIEW-1] never clears the scrollback, and never writes below the window", () => {
    const { painter, written } = paintOn(3);
    painter.open();
    painter.paint("1\n2\n3\n4\n5");
    painter.forget();
    painter.paint("1");
    const all = written.join("");
    expect(all).not.toContain("\x1b[3J");
    expect(all).not.toContain("\x1b[4;1H");
    expect(all).not.toContain("\n");
  });

  it("writes only the lines that changed, in one piece, and nothing for an equal frame", () => {
    const { painter, written } = paintOn();
    painter.open();
    painter.paint("a\nb\nc");
    written.length = 0;
    painter.paint("a\nB\nc");
    expect(written).toHaveLength(1);
    expect(written[0]).toContain("\x1b[2;1H");
    expect(written[0]).not.toContain("\x1b[1;1H");
    painter.paint("a\nB\nc");
    expect(written).toHaveLength(1);
  });

  it("empties lines that a shorter frame leaves, and repaints all after the window changed", () => {
    const { painter, written } = paintOn();
    painter.open();
    painter.paint("a\nb");
    written.length = 0;
    painter.paint("a");
    expect(written.join("")).toContain("\x1b[2;1H\x1b[0m\x1b[0m\x1b[K");
    painter.forget();
    painter.paint("a");
    expect(written.at(-1)).toContain("\x1b[1;1H");
  });

  it("[CLI-13] gets frames of lines and colours alone, whatever the text in them holds", () => {
    const frames: string[] = [];
    const stream = new FrameStream(80, (frame) => frames.push(frame));
    stream.write("\x1b[1;31ma\x1b[2J\u009b5n\u202eb\x1b[39m\n\x7fc\u2028\r");
    expect(frames).toEqual(["\x1b[1;31ma[2J5nb\x1b[39m\nc"]);
  });

  it("[VIEW-1] writes nothing before it is opened or after it is closed", () => {
    const { painter, written } = paintOn();
    painter.paint("a");
    painter.open();
    painter.close();
    const before = written.length;
    painter.paint("b");
    painter.forget();
    expect(written).toHaveLength(before);
  });
});

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

describe("text in cells", () => {
  it("takes exactly its width, whatever the script, and passes no control character on", () => {
    const text = fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 80 }),
      fc.string({ unit: CHARACTER, maxLength: 40 }),
      fc.constantFrom(
        "一只在雪地里奔跑的红色狐狸和它的朋友",
        "👩‍👩‍👧‍👦🦊🦊 party",
        "e\u0301e\u0301",
        "a\x1b[31mb\u0007c",
        "\u{1d158}\u{1d165}\u{1d16e} ",
        "\u{1d158}\u{1d165}\u{1d16e}\u{1d158}\u{1d165}\u{1d16e}",
      ),
    );
    fc.assert(
      fc.property(
        text,
        fc.integer({ min: 1, max: 60 }),
        fc.constantFrom("left", "right"),
        (value, width, align) => {
          const cells = inCells(value, width, align as "left" | "right");
          expect(stringWidth(cells)).toBe(width);
          expect(cells).not.toMatch(/\p{Cc}/u);
        },
      ),
      { numRuns: 200 },
    );
  });

  it("shows what has room whole, and marks what was cut", () => {
    expect(inCells("fox", 5)).toBe("fox  ");
    expect(inCells("fox", 5, "right")).toBe("  fox");
    expect(inCells("a long name", 6)).toBe("a lon…");
    expect(inCells("红色狐狸", 5)).toBe("红色…");
  });
});

describe("small pictures in text", () => {
  it("a bar is never full before the end, and shows any failure", () => {
    const width = ({ good, bad, rest }: ReturnType<typeof bar>) => good.length + bad.length + rest.length;
    fc.assert(
      fc.property(
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (done, failed) => {
          const parts = bar(10, done, failed * done);
          expect(width(parts)).toBe(10);
          if (done < 1) expect(parts.rest).not.toBe("");
        },
      ),
    );
    expect(bar(10, 1)).toEqual({ good: "█".repeat(10), bad: "", rest: "" });
    expect(bar(10, 1, 0.001).bad).toBe("▒");
  });

  it("the sparkline is as wide as asked, and silence is empty", () => {
    expect(sparkline([0, 1, 2, 4, 8], 8)).toBe("    ▁▂▄█");
    expect(sparkline([0, 0, 0], 5)).toBe("     ");
    expect(sparkline([1, 1, 1, 1], 2)).toBe("██");
  });
});

describe("numbers", () => {
  it("are short and exact enough", () => {
    const amounts = [null, 0, 33_500, 1_240_000, 100_000];
    const sums = ["–", "$0.00", "$0.03", "$1.24", "$0.10"];
    expect(amounts.map((amount) => dollars(amount, "sum"))).toEqual(sums);
  });
});
