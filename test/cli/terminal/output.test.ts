import { expect, it } from "vitest";
import { createOutput, createPlainOutput } from "../../../src/cli/output/output.ts";
import { InstantClock } from "../../support/instant-clock.ts";

function plain(options: { verbose?: boolean; hasProgress?: boolean } = {}) {
  const lines: string[] = [];
  const clock = new InstantClock();
  const stderr = { write: (text: string) => lines.push(text) };
  return {
    lines,
    clock,
    output: createPlainOutput(stderr, { verbose: false, hasProgress: true, clock, ...options }),
  };
}

it("without a terminal a change is said at most every 10 s, and no change every 60 s", async () => {
  const { lines, clock, output } = plain();
  const said = async (text: string, afterMs: number) => {
    await clock.sleep(afterMs);
    output.progress(text);
    return lines.length;
  };
  expect(await said("1/9", 0)).toBe(1);
  expect(await said("2/9", 9_000)).toBe(1);
  expect(await said("3/9", 1_000)).toBe(2);
  expect(await said("3/9", 59_000)).toBe(2);
  expect(await said("3/9", 1_000)).toBe(3);
  expect(lines).toEqual(["1/9\n", "3/9\n", "3/9\n"]);
});

it("a sign of life tells how long the work has taken, which is no change", async () => {
  const { lines, clock, output } = plain();
  const startMs = clock.nowMs();
  for (const afterMs of [0, 30_000, 30_000, 120_000]) {
    await clock.sleep(afterMs);
    output.progress("1/9, running", startMs);
  }
  expect(lines).toEqual(["1/9, running\n", "1/9, running, 60 s elapsed\n", "1/9, running, 3 min elapsed\n"]);
});

it("details are for -v, and control characters are shown instead of obeyed", () => {
  const quietly = plain();
  quietly.output.detail("hidden");
  quietly.output.note("a\u001b[1mb\r");
  expect(quietly.lines).toEqual(["a\\x1b[1mb\\x0d\n"]);
  const verbosely = plain({ verbose: true });
  verbosely.output.detail("shown");
  expect(verbosely.lines).toEqual(["shown\n"]);
});

it("a terminal without columns gets plain lines: a live line would redraw without end", async () => {
  const lines: string[] = [];
  const stderr = {
    isTTY: true,
    columns: 0,
    write: (text: string) => lines.push(text),
  } as unknown as NodeJS.WriteStream;
  const output = await createOutput(
    { quiet: false, verbose: false, progress: "auto", color: true },
    stderr,
    new InstantClock(),
  );
  output.progress("1/9");
  output.settle();
  expect(lines).toEqual(["1/9\n"]);
});
