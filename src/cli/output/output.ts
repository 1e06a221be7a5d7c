import { closeSync, openSync, writeSync } from "node:fs";
import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import type { EventLine, RunEvent } from "../../contract/events.ts";
import { isDumbTerminal } from "../../environment.ts";
import type { Clock } from "../../kernel/clock.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { safeJson, safeLine } from "../../kernel/hide-keys.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import type { Lines } from "../command.ts";
import type { GlobalOptions } from "../options.ts";
import { mayColor, type Terminal } from "../terminal.ts";

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
    return createLiveOutput(stderr, { verbose, hasColor: mayColor(stderr, global.color), clock });
  }
  return createPlainOutput(stderr, { verbose, clock, hasProgress: progress !== "none" });
}

/** The shortest time between two progress lines: with a new text, and with the same one. */
const CHANGE_MS = 10_000;
const HEARTBEAT_MS = 60_000;

function createPlainOutput(
  stderr: NodeJS.WriteStream,
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

/** A shorter time is not shown. */
const SHORTEST_MS = 1000;

/** Adds the time since `sinceMs` to a progress text. Without a start, or within the first second, adds nothing. */
function withElapsed(text: string, sinceMs: number | undefined, nowMs: number): string {
  const elapsedMs = sinceMs === undefined ? 0 : nowMs - sinceMs;
  return elapsedMs < SHORTEST_MS ? text : `${text}, ${formatDuration(elapsedMs)} elapsed`;
}

/** Output for a terminal: a spinner, with the lines that stay above it. */
async function createLiveOutput(
  stderr: NodeJS.WriteStream,
  { verbose, hasColor, clock }: { verbose: boolean; hasColor: boolean; clock: Clock },
): Promise<Lines> {
  const { default: ora } = await import("ora");
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

/** Writes the events of a run. Each is written before the work continues, so that a crash loses none. */
interface EventLog {
  write(event: RunEvent): void;
  close(): void;
}

/**
 * Opens the target of `--events`: a file, which is overwritten, or `-` for stdout. Throws `USAGE` if it cannot. A file
 * that fails later (a full disk) does not stop the command: `onFailure` is called once.
 */
export function openEventLog(
  target: string | undefined,
  terminal: Pick<Terminal, "stdout" | "cwd">,
  clock: Clock,
  onFailure: (message: string) => void,
): EventLog {
  if (target === undefined) return { write() {}, close() {} };
  const line = (event: RunEvent) => {
    const time = new Date(clock.nowMs()).toISOString();
    return `${safeJson({ schema_version: 1, time, ...event } satisfies EventLine)}\n`;
  };
  if (target === "-") return { write: (event) => void terminal.stdout.write(line(event)), close() {} };
  let file: number | null = openFile(resolve(terminal.cwd, target), target);
  const close = () => {
    if (file !== null) closeSync(file);
    file = null;
  };
  return {
    write: (event) => {
      if (file === null) return;
      try {
        writeSync(file, line(event));
      } catch (error) {
        close();
        onFailure(
          `--events ${target}: cannot be written any more (${systemCodeOf(error)}); going on without it`,
        );
      }
    },
    close,
  };
}

function openFile(path: string, shown: string): number {
  try {
    return openSync(path, "w");
  } catch (cause) {
    const message = `--events ${shown}: cannot be written (${systemCodeOf(cause)}).`;
    throw new ImgbatchError("USAGE", message, { param: "--events", cause });
  }
}
