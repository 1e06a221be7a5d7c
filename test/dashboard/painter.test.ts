import { describe, expect, it } from "vitest";
import { FrameStream, Painter } from "../../src/dashboard/painter.ts";

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
