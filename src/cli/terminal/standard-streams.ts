import { ImgbatchError } from "../../contract/errors.ts";
import { systemCodeOf } from "../../kernel/files/disk-full.ts";
import type { Terminal } from "./terminal.ts";

/**
 * Watches over stdout and stderr. Whoever reads may stop reading (`| head`): that is no failure of the command, and
 * aborts `closed`. Results that cannot be written for another reason, such as a full disk, are `SAVE_FAILED`.
 */
export function guardStreams({ stdout, stderr }: Pick<Terminal, "stdout" | "stderr">): {
  closed: AbortSignal;
  /** Throws what kept the results from being written. */
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
      // Errors of a write are told on the next turn.
      await new Promise((done) => setImmediate(done));
      if (failure !== null) throw failure;
    },
  };
}
