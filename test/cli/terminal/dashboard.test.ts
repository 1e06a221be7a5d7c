import { expect, it, onTestFinished, vi } from "vitest";
import type { CommandContext } from "../../../src/cli/command.ts";
import { mayShowDashboard } from "../../../src/cli/terminal.ts";

it("[VIEW-1] the live view is for a terminal that can be redrawn, unless somebody asks for lines", () => {
  const before = [process.stdin.isTTY, process.stdout.isTTY, process.stdout.columns] as const;
  const setTerminal = ([stdin, stdout, columns]: readonly [boolean, boolean, number]) => {
    Object.assign(process.stdin, { isTTY: stdin });
    Object.assign(process.stdout, { isTTY: stdout, columns });
  };
  onTestFinished(() => {
    setTerminal(before);
    vi.unstubAllEnvs();
  });
  const may = (quiet = false, progress = "auto", isForPeople = true) =>
    mayShowDashboard({ global: { quiet, progress }, results: { isForPeople } } as unknown as CommandContext);
  setTerminal([true, true, 80]);
  vi.stubEnv("CI", "");
  vi.stubEnv("TERM", "xterm-256color");
  expect(may()).toBe(true);
  expect([may(true), may(false, "plain"), may(false, "auto", false)]).toEqual([false, false, false]);
  for (const [name, value] of [
    ["TERM", "dumb"],
    ["CI", "true"],
  ] as const) {
    vi.stubEnv(name, value);
    expect(may()).toBe(false);
    vi.stubEnv(name, "");
  }
  for (const shape of [
    [false, true, 80],
    [true, false, 80],
    [true, true, 0],
  ] as const) {
    setTerminal(shape);
    expect(may()).toBe(false);
  }
});
