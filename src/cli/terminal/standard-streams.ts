import { ImgbatchError } from "../../contract/errors.ts";
import { systemCodeOf } from "../../kernel/files/disk-full.ts";
import type { Terminal } from "./terminal.ts";

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
