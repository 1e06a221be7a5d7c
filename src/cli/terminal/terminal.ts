import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";

/** The process as the command line sees it. */
export interface Terminal {
  stdin: AsyncIterable<Uint8Array> & { isTTY?: boolean };
  stdout: NodeJS.WriteStream;
  stderr: NodeJS.WriteStream;
  /** Writes to stderr what is meant for the runner of GitHub Actions. Default: as everything else. */
  command?: ((text: string) => void) | undefined;
  cwd: string;
  /** Default: the wall clock of the machine. */
  clock?: Clock;
  /** Where signals arrive. */
  signals: Pick<NodeJS.Process, "on" | "off">;
  /** Ends the process at once. */
  exit(code: number): void;
}

/**
 * The pieces of standard input. Throws the signal's reason when it is aborted first: an end may never come.
 */
export async function* piecesOf(
  stream: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (signal.aborted) throw explained(signal.reason);
  const pieces = stream[Symbol.asyncIterator]();
  // One promise for all of them would hold on to every piece.
  const next = async () => {
    let stop = () => {};
    try {
      return await new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
        stop = () => reject(explained(signal.reason));
        signal.addEventListener("abort", stop, { once: true });
        pieces.next().then(resolve, reject);
      });
    } finally {
      signal.removeEventListener("abort", stop);
    }
  };
  try {
    for (;;) {
      if (signal.aborted) throw explained(signal.reason);
      const { value, done } = await next();
      if (done) return;
      yield value;
    }
  } finally {
    // A stream that nobody reads to its end would keep the process.
    if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy();
  }
}

/** Everything of a stream, as `piecesOf` gives it. */
export async function readAll(stream: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  for await (const piece of piecesOf(stream, signal)) pieces.push(piece);
  return Buffer.concat(pieces);
}

function explained(reason: unknown): unknown {
  if (!(reason instanceof ImgbatchError) || reason.code !== "TIMEOUT") return reason;
  const message = "Time is up: standard input has not ended. Nothing was sent.";
  return new ImgbatchError("TIMEOUT", message, {
    advice: "end what is piped into the command, or allow more time with --timeout",
  });
}

/** Whether to colour what goes to a stream: only on a terminal that can, and never against NO_COLOR or `--no-color`. */
export function mayColor(stream: NodeJS.WriteStream, isWanted: boolean): boolean {
  // The terminal itself looks at NO_COLOR and TERM.
  return isWanted && stream.isTTY === true && stream.hasColors();
}
