import { ImgbatchError } from "../contract/errors.ts";
import { isDumbTerminal } from "../environment.ts";
import type { Clock } from "../kernel/clock.ts";
import { safeLine } from "../kernel/hide-keys.ts";
import { systemCodeOf } from "../kernel/system-errors.ts";
import { counted } from "../kernel/text.ts";
import type { CommandContext, LoadView } from "./command.ts";

/** The surroundings of the command line: streams, directory, signals. Normally those of the process. */
export interface Terminal {
  stdin: AsyncIterable<Uint8Array> & { isTTY?: boolean };
  stdout: NodeJS.WriteStream;
  stderr: NodeJS.WriteStream;
  /** Writes workflow commands of GitHub Actions to stderr. Default: `stderr.write`. */
  command?: ((text: string) => void) | undefined;
  cwd: string;
  /** Default: the wall clock of the machine. */
  clock?: Clock;
  /** The emitter of signals. */
  signals: Pick<NodeJS.Process, "on" | "off">;
  /** Ends the process at once. */
  exit(code: number): void;
  /** Loads the live view. */
  loadView: LoadView;
}

/**
 * Yields the chunks of standard input. Throws the signal's reason on abort, because the input may never end.
 */
export async function* chunksOf(
  stream: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (signal.aborted) throw explainTimeout(signal.reason);
  const chunks = stream[Symbol.asyncIterator]();
  // A single promise shared by all reads would keep every chunk in memory.
  const next = async () => {
    let stop = () => {};
    try {
      return await new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
        stop = () => reject(explainTimeout(signal.reason));
        signal.addEventListener("abort", stop, { once: true });
        chunks.next().then(resolve, reject);
      });
    } finally {
      signal.removeEventListener("abort", stop);
    }
  };
  try {
    for (;;) {
      if (signal.aborted) throw explainTimeout(signal.reason);
      const { value, done } = await next();
      if (done) return;
      yield value;
    }
  } finally {
    // An unfinished stream would keep the process alive.
    if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy();
  }
}

/** Reads a whole stream. Throws like `chunksOf`. */
export async function readAll(stream: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const piece of chunksOf(stream, signal)) chunks.push(piece);
  return Buffer.concat(chunks);
}

/**
 * Returns a function that asks a question on stderr and reads a line. It remembers the answers: a question is asked once.
 * Null unless standard input and stderr are terminals.
 */
export function askOn(
  terminal: Pick<Terminal, "stdin"> & { stderr: { isTTY?: boolean; write(text: string): unknown } },
): ((question: string, signal: AbortSignal) => Promise<string>) | null {
  const { stderr } = terminal;
  if (stderr.isTTY !== true || terminal.stdin.isTTY !== true) return null;
  const answers = new Map<string, string>();
  return async (question, signal) => {
    const known = answers.get(question);
    if (known !== undefined) return known;
    stderr.write(safeLine(question));
    let text = "";
    try {
      for await (const chunk of chunksOf(terminal.stdin, signal)) {
        text += Buffer.from(chunk).toString();
        if (text.includes("\n")) break;
      }
    } catch (error) {
      // A standard input that was read to its end gives no answer.
      if (signal.aborted) throw error;
    }
    const answer = (text.split("\n", 1)[0] ?? "").trim();
    answers.set(question, answer);
    return answer;
  };
}

function explainTimeout(reason: unknown): unknown {
  if (!(reason instanceof ImgbatchError) || reason.code !== "TIMEOUT") return reason;
  const message = `${reason.message} Standard input has not ended; nothing was sent.`;
  return new ImgbatchError("TIMEOUT", message, {
    advice: "end what is piped into the command, or allow more time with --timeout",
  });
}

/** Whether to use colours on a stream: only on a terminal that supports them, without NO_COLOR and `--no-color`. */
export function mayColor(stream: NodeJS.WriteStream, isWanted: boolean): boolean {
  // hasColors() reads NO_COLOR and TERM.
  return isWanted && stream.isTTY === true && stream.hasColors();
}

/**
 * Handles the errors of stdout and stderr. A reader that closes the pipe (`| head`) aborts `closed`, and is not a
 * failure of the command. Any other write error of stdout, such as a full disk, is `SAVE_FAILED`.
 */
export function guardStreams({ stdout, stderr }: Pick<Terminal, "stdout" | "stderr">): {
  closed: AbortSignal;
  /** Throws the error that prevented a write to stdout, if there was one. */
  requireWritten(): Promise<void>;
} {
  const closed = new AbortController();
  let failure: ImgbatchError | null = null;
  stdout.on("error", (error: NodeJS.ErrnoException) => {
    closed.abort();
    if (error.code === "EPIPE") return;
    failure = new ImgbatchError("SAVE_FAILED", `The result could not be written (${systemCodeOf(error)}).`);
  });
  stderr.on("error", () => {});
  return {
    closed: closed.signal,
    requireWritten: async () => {
      // Node reports write errors in a later turn of the event loop.
      await new Promise((done) => setImmediate(done));
      if (failure !== null) throw failure;
    },
  };
}

const SIGNALS = { SIGINT: "INTERRUPTED", SIGTERM: "TERMINATED" } as const;

interface SignalWatch {
  signal: AbortSignal;
  /** Aborts for another reason, such as a failed embedded service. */
  abort: (reason: Error) => void;
  /** Counts the requests that cost money and that the second signal would abandon. Default: none. */
  countPaid: (paid: () => number) => void;
  stop: () => void;
}

/**
 * Watches for signals. The first SIGINT or SIGTERM aborts with an `ImgbatchError`. The second one ends the process at
 * once, with the exit code that `fail` returns.
 */
export function watchSignals(
  terminal: Pick<Terminal, "signals" | "exit">,
  fail: (error: ImgbatchError) => number,
): SignalWatch {
  const controller = new AbortController();
  let isSignalled = false;
  let countPaid = () => 0;
  const onSignal = (name: keyof typeof SIGNALS) => {
    if (isSignalled) {
      const advice = abandonedAdvice(countPaid());
      terminal.exit(fail(new ImgbatchError(SIGNALS[name], undefined, { advice })));
    }
    isSignalled = true;
    controller.abort(new ImgbatchError(SIGNALS[name]));
  };
  const names = Object.keys(SIGNALS) as (keyof typeof SIGNALS)[];
  for (const name of names) terminal.signals.on(name, onSignal);
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    countPaid: (paid) => {
      countPaid = paid;
    },
    stop: () => {
      for (const name of names) terminal.signals.off(name, onSignal);
    },
  };
}

/**
 * Returns the line for a person whose service stops while `paid` requests run that cost money; null when none does.
 * `how`: the keys that end the process at once.
 */
export function paidRequestsNote(
  paid: number,
  how: "Ctrl-C" | "Ctrl-C twice" | "a second Ctrl-C",
): string | null {
  if (paid === 0) return null;
  const [are, they, them] = paid === 1 ? ["is", "it", "it"] : ["are", "they", "them"];
  const waiting = `stopping: waiting for ${counted(paid, "request")} that ${are} paid`;
  return `${waiting}; ${how} abandons ${them}, and then ${they} may be paid and lost`;
}

/** Returns the advice after `paid` requests that cost money were abandoned; undefined when there was none. */
function abandonedAdvice(paid: number): string | undefined {
  if (paid === 0) return undefined;
  const [images, are] =
    paid === 1
      ? ["the image of the abandoned request", "is"]
      : ["the images of the abandoned requests", "are"];
  return `run the same command again: it continues where it stopped. It asks nobody again for ${images}, which may be paid: ${paid === 1 ? "it" : "they"} ${are} made by retry --include-lost (with --unknown once, by the same command, marked)`;
}

/** Whether the live view fits: a person at a terminal that can redraw, who did not ask for plain output. */
export function mayShowDashboard({ global, results }: CommandContext): boolean {
  if (global.quiet || global.progress !== "auto" || !results.isForPeople) return false;
  if (!process.stdin.isTTY || !process.stdout.isTTY || !process.stdout.columns) return false;
  return !isDumbTerminal();
}
