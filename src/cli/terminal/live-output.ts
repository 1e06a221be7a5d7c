import ora from "ora";
import type { Clock } from "../../kernel/clock.ts";
import { safeLine } from "../../kernel/hide-keys.ts";
import type { Lines } from "../command-line/command-context.ts";
import { withElapsed } from "./elapsed.ts";

/** Output for a terminal: a spinner, with the lines that stay above it. */
export function createLiveOutput(
  stderr: NodeJS.WriteStream,
  { verbose, hasColor, clock }: { verbose: boolean; hasColor: boolean; clock: Clock },
): Lines {
  // By default ora reads stdin, which would keep the process alive and swallow Ctrl-C.
  const spinner = ora({ stream: stderr, discardStdin: false, color: hasColor ? "cyan" : false });
  const note = (line: string) => {
    const isSpinning = spinner.isSpinning;
    if (isSpinning) spinner.stop();
    stderr.write(`${safeLine(line)}\n`);
    if (isSpinning) spinner.start();
  };
  return {
    note,
    detail: (line) => {
      if (verbose) note(line);
    },
    progress: (text, sinceMs) => {
      spinner.text = safeLine(withElapsed(text, sinceMs, clock.nowMs()));
      if (!spinner.isSpinning) spinner.start();
    },
    settle: () => {
      if (spinner.isSpinning) spinner.stop();
    },
  };
}
