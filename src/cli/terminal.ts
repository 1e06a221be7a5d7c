/** The process as the command line sees it. */
export interface Terminal {
  stdin: AsyncIterable<Uint8Array>;
  stdout: NodeJS.WriteStream;
  stderr: NodeJS.WriteStream;
  cwd: string;
  /** Where signals arrive. */
  signals: Pick<NodeJS.Process, "on" | "off">;
  /** Ends the process at once. */
  exit(code: number): void;
}

export async function readAll(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Whether to colour what goes to a stream: only on a terminal that can, and never against NO_COLOR or `--no-color`. */
export function mayColor(stream: NodeJS.WriteStream, isWanted: boolean): boolean {
  // The terminal itself looks at NO_COLOR and TERM.
  return isWanted && stream.isTTY === true && stream.hasColors();
}
