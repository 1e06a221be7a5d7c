import { ImgbatchError } from "../contract/errors.ts";

/** The process as the command line sees it. */
export interface Terminal {
  stdin: AsyncIterable<Uint8Array> & { isTTY?: boolean };
  stdout: NodeJS.WriteStream;
  stderr: NodeJS.WriteStream;
  cwd: string;
  /** Where signals arrive. */
  signals: Pick<NodeJS.Process, "on" | "off">;
  /** Ends the process at once. */
  exit(code: number): void;
}

/**
 * Everything of standard input. Throws the signal's reason when it is aborted first: an end may never come.
 * Rules: CLI-11, CLI-38.
 */
export async function readAll(stream: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  const read = async () => {
    for await (const chunk of stream) chunks.push(chunk);
  };
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(explained(signal.reason));
    signal.addEventListener("abort", stop, { once: true });
  });
  if (signal.aborted) throw signal.reason;
  try {
    await Promise.race([read(), aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
    // A stream that nobody reads to its end would keep the process.
    if (signal.aborted && "destroy" in stream && typeof stream.destroy === "function") stream.destroy();
  }
  return Buffer.concat(chunks);
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
