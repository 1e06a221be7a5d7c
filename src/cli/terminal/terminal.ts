import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { safeLine } from "../../kernel/hide-keys.ts";

/** Loads the code of the live view, which only a terminal needs. */
export type LoadView = () => Promise<typeof import("../../dashboard/show.tsx")>;

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
  terminal: Pick<Terminal, "stdin" | "stderr">,
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
