import { isDumbTerminal } from "../../environment.ts";
import type { Clock } from "../../kernel/clock.ts";
import { safeLine } from "../../kernel/hide-keys.ts";
import type { Lines } from "../command-line/command-context.ts";
import type { GlobalOptions } from "../command-line/global-options.ts";
import { withElapsed } from "./elapsed.ts";
import { mayColor } from "./terminal.ts";

interface Stream {
  isTTY?: boolean;
  write(text: string): unknown;
}

/**
 * Creates the output on stderr: a spinner on a terminal, plain lines elsewhere, nothing with `--quiet`.
 */
export async function createOutput(
  global: Pick<GlobalOptions, "quiet" | "verbose" | "progress" | "color">,
  stderr: NodeJS.WriteStream,
  clock: Clock,
): Promise<Lines> {
  const { quiet, verbose, progress } = global;
  if (quiet) return { note() {}, detail() {}, progress() {}, settle() {} };
  // On a terminal that reports 0 columns the spinner would redraw without end.
  if (progress === "auto" && stderr.isTTY && stderr.columns !== 0 && !isDumbTerminal()) {
    const { createLiveOutput } = await import("./live-output.ts");
    return createLiveOutput(stderr, { verbose, hasColor: mayColor(stderr, global.color), clock });
  }
  return createPlainOutput(stderr, { verbose, clock, hasProgress: progress !== "none" });
}

/** The shortest time between two progress lines: with a new text, and with the same one. */
const CHANGE_MS = 10_000;
const HEARTBEAT_MS = 60_000;

export function createPlainOutput(
  stderr: Stream,
  options: { verbose: boolean; hasProgress: boolean; clock: Clock },
): Lines {
  const say = (line: string) => stderr.write(`${safeLine(line)}\n`);
  let last = { text: "", atMs: Number.NEGATIVE_INFINITY };
  return {
    note: say,
    detail: (line) => {
      if (options.verbose) say(line);
    },
    progress: (text, beganMs) => {
      if (!options.hasProgress) return;
      const nowMs = options.clock.nowMs();
      const sinceMs = nowMs - last.atMs;
      // A negative time means that the clock was set back: write the line.
      if (sinceMs >= 0 && sinceMs < (text === last.text ? HEARTBEAT_MS : CHANGE_MS)) return;
      last = { text, atMs: nowMs };
      say(withElapsed(text, beganMs, nowMs));
    },
    settle: () => {},
  };
}
