import { closeSync, openSync, writeSync } from "node:fs";
import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import type { EventLine, RunEvent } from "../../contract/events.ts";
import type { Clock } from "../../kernel/clock.ts";
import { systemCodeOf } from "../../kernel/files/disk-full.ts";
import { safeJson } from "../../kernel/hide-keys.ts";
import type { Terminal } from "./terminal.ts";

const SCHEMA_VERSION: EventLine["schema_version"] = 1;

/** Writes the events of a run. Each is written before the work continues, so that a crash loses none. */
export interface EventLog {
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
    return `${safeJson({ schema_version: SCHEMA_VERSION, time, ...event })}\n`;
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
