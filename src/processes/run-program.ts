import { type ChildProcessByStdio, spawn } from "node:child_process";
import { access, constants, stat } from "node:fs/promises";
import { delimiter, join, resolve } from "node:path";
import type { Readable, Writable } from "node:stream";
import type { Clock } from "../kernel/clock.ts";
import { endDescendants } from "./guard.ts";

/*
 * Runs a program of the user: gives it a text, keeps the end of its output, and ends every process that it leaves behind.
 */

/** How long a process that could not be found may hold the streams open. */
const CLOSE_PATIENCE_MS = 5000;

export interface ProgramEnd {
  /** Null when a signal ended it. */
  exitCode: number | null;
  signal: NodeJS.Signals | null;
  stdout: Tail;
  stderr: Tail;
}

/** A program that could not be started. `cause` is the error of the system. */
export class NotStarted extends Error {}

type Program = ChildProcessByStdio<Writable, Readable, Readable>;

/**
 * Runs a program to its end, in a process group of its own, and then ends every process that it has left behind. When `signal`
 * aborts first, ends the program and these processes, and rejects with the reason of the signal. Throws `NotStarted` when the
 * program cannot be started.
 */
export async function runProgram(
  argv: readonly string[],
  options: {
    env: Record<string, string>;
    input: string;
    mark: string;
    clock: Clock;
    signal: AbortSignal;
    onStarted: (pid: number) => void;
    /** Default: that of this process. */
    cwd?: string;
    /** Called when the program has printed more than is kept. */
    onTooMuch?: () => void;
  },
): Promise<ProgramEnd> {
  const { env, input, mark, clock, signal, onStarted, cwd, onTooMuch } = options;
  const { program, pid } = await start(argv, env, cwd);
  const exited = new Promise<"exited">((resolve) => program.once("exit", () => resolve("exited")));
  const closed = new Promise<void>((resolve) => program.once("close", () => resolve()));
  const stdout = new Tail(program.stdout, onTooMuch);
  const stderr = new Tail(program.stderr);
  onStarted(pid);
  // A program need not read its input.
  program.stdin.on("error", () => {});
  program.stdin.end(input);

  const first = await orAborted(exited, signal);
  await endDescendants({ pid, group: process.platform === "win32" ? null : pid, mark }, clock);
  await orLate(closed, clock);
  for (const stream of [program.stdin, program.stdout, program.stderr]) stream.destroy();
  if (first === "aborted") throw signal.reason;
  return { exitCode: program.exitCode, signal: program.signalCode, stdout, stderr };
}

/** Spawns the program. Node throws some failures and emits others as an event. */
function start(
  [file = "", ...args]: readonly string[],
  env: Record<string, string>,
  cwd: string | undefined,
): Promise<{ program: Program; pid: number }> {
  return new Promise((resolve, reject) => {
    const failed = (error: unknown) => reject(new NotStarted(file, { cause: error }));
    try {
      const detached = process.platform !== "win32";
      const program = spawn(file, args, {
        env,
        cwd,
        detached,
        stdio: ["pipe", "pipe", "pipe"],
        windowsHide: true,
      });
      program.on("error", failed);
      if (program.pid !== undefined) resolve({ program, pid: program.pid });
    } catch (error) {
      failed(error);
    }
  });
}

function orAborted(exited: Promise<"exited">, signal: AbortSignal): Promise<"exited" | "aborted"> {
  return new Promise((resolve) => {
    const onAbort = () => resolve("aborted");
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    void exited.then((state) => {
      signal.removeEventListener("abort", onAbort);
      resolve(state);
    });
  });
}

async function orLate(closed: Promise<void>, clock: Clock): Promise<void> {
  const done = new AbortController();
  await Promise.race([closed, clock.sleep(CLOSE_PATIENCE_MS, done.signal).catch(() => {})]);
  done.abort();
}

/** The bytes of a stream that are kept. */
const KEPT_BYTES = 64 * 1024;

/** Reads a stream to its end and keeps the last bytes. */
export class Tail {
  #chunks: Buffer[] = [];
  #bytes = 0;
  readonly #onCut: () => void;
  /** Whether earlier bytes were dropped. */
  isCut = false;

  constructor(stream: Readable, onCut: () => void = () => {}) {
    this.#onCut = onCut;
    stream.on("data", (chunk: Buffer) => this.#add(chunk));
    // A stream that breaks has ended.
    stream.on("error", () => {});
  }

  #add(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    // Twice the size, so that small chunks are not copied again and again.
    if (this.#bytes > 2 * KEPT_BYTES) this.#trim();
  }

  #trim(): void {
    if (this.#bytes <= KEPT_BYTES) return;
    const kept = Buffer.from(Buffer.concat(this.#chunks).subarray(-KEPT_BYTES));
    this.#chunks = [kept];
    this.#bytes = kept.length;
    if (!this.isCut) this.#onCut();
    this.isCut = true;
  }

  text(): string {
    this.#trim();
    return Buffer.concat(this.#chunks).toString("utf8");
  }
}

/** The variables that every program sees when they are set. */
export const ALWAYS_SEEN = [
  ...["PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE"],
  ...["LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"],
];

/** Returns why a program cannot be started; null if it can. A name without a slash is looked up in `path`. */
export async function startProblem(
  file: string,
  path: string,
  cwd: string = process.cwd(),
): Promise<NodeJS.ErrnoException | null> {
  const candidates = file.includes("/") ? [file] : path.split(delimiter).map((folder) => join(folder, file));
  let found: NodeJS.ErrnoException = Object.assign(new Error(), { code: "ENOENT" });
  for (const candidate of candidates.map((each) => resolve(cwd, each))) {
    try {
      await access(candidate, constants.X_OK);
      if ((await stat(candidate)).isFile()) return null;
      found = Object.assign(new Error(), { code: "EACCES" });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EACCES") found = error as NodeJS.ErrnoException;
    }
  }
  return found;
}
