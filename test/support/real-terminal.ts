import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, type TestContext } from "vitest";
import { cleanEnvironment } from "./processes.ts";
import { watchText } from "./secrets.ts";

const HELPER = fileURLToPath(new URL("real-terminal.py", import.meta.url));

export interface RealTerminal {
  /** All that was written to the terminal so far, as it is. */
  written(): string;
  /** Waits until the text was written; `from` leaves out what came before. */
  until(text: RegExp, from?: number): Promise<void>;
  press(keys: string): void;
  resize(columns: number, rows: number): void;
  signal(name: "SIGTERM" | "SIGINT" | "SIGKILL"): void;
  /** How the program ended (below 0: the number of the signal), and whether the terminal reads lines as before. */
  ended: Promise<{ code: number; isCooked: boolean }>;
}

let canMakeTerminal: boolean | null = null;

/** Skips the test, aloud, where there is nothing that can make a terminal. */
export function needTerminal({ skip }: TestContext): void {
  canMakeTerminal ??= spawnSync("python3", ["-c", "import fcntl, termios"]).status === 0;
  if (canMakeTerminal) return;
  process.stderr.write("SKIPPED: this needs python3 on a system with terminals\n");
  skip("there is no python3 that can make a terminal");
}

/** Starts a Node program on a terminal of its own, of 80×24 cells; it is killed at the end of the test. */
export function startOnTerminal(args: readonly string[], env: Record<string, string> = {}): RealTerminal {
  const { CI: _c, NO_COLOR: _n, FORCE_COLOR: _f, NODE_ENV: _e, VITEST: _v, ...rest } = cleanEnvironment();
  const child = spawn("python3", [HELPER, "80", "24", process.execPath, ...args], {
    env: { ...rest, TERM: "xterm-256color", ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  let written = "";
  let report = "";
  child.stdin.on("error", () => {});
  child.stdout.setEncoding("utf8").on("data", (text) => {
    written += text;
  });
  child.stderr.on("data", (text) => {
    report += text;
  });
  const closed = once(child, "close");
  const steer = (line: string) => child.stdin.write(`${line}\n`);
  onTestFinished(async () => {
    child.stdin.end();
    await closed;
    watchText(written, `the terminal of ${args.slice(1, 2).join(" ")}`);
  });
  return {
    written: () => written,
    until: (text, from = 0) => expect.poll(() => written.slice(from)).toMatch(text),
    press: (keys) => steer(`keys ${JSON.stringify(keys)}`),
    resize: (columns, rows) => steer(`size ${columns} ${rows}`),
    signal: (name) => steer(`signal ${constants.signals[name]}`),
    ended: closed.then(() => JSON.parse(report)),
  };
}
