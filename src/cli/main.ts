import { ignoreRelativeDirectories, readActionsEnvironment } from "../environment.ts";
import { readVersion } from "../kernel/package-file.ts";
import type { LoadView } from "./command.ts";

/** Runs the command line of this process. It loads almost nothing first, so that `--version` takes no longer than Node itself. */
export async function main(loadView: LoadView): Promise<void> {
  const args = process.argv.slice(2);
  // Node also ends a process whose work can never finish, as nothing is left to wait for. So success is set only at the end of
  // the work.
  process.exitCode = 1;
  if (args.length === 1 && (args[0] === "--version" || args[0] === "-V")) {
    process.stdout.write(`${readVersion()}\n`);
    process.exitCode = 0;
    return;
  }
  ignoreRelativeDirectories();
  const { runCli } = await import("./run-cli.ts");
  let writeCommand: ((text: string) => void) | undefined;
  if (readActionsEnvironment() !== null) {
    guardWorkflowCommands(process.stdout);
    writeCommand = guardWorkflowCommands(process.stderr);
  }
  process.exitCode = await runCli(args, {
    // Opened when it is read.
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    command: writeCommand,
    cwd: process.cwd(),
    signals: process,
    exit: (code) => process.exit(code),
    loadView,
  });
}

/**
 * The beginning of a workflow command of GitHub Actions: `::` at the start of a line, also after blanks, and the older
 * `##[` anywhere in a line. See "Workflow commands for GitHub Actions" in the GitHub documentation.
 */
const COMMAND = /^([^\S\n]*):(?=:)|#(?=#\[)/gm;

/**
 * Disarms workflow commands in a text: their first character becomes an escape that JSON parsers read as the same text.
 */
export function withoutWorkflowCommands(text: string): string {
  return text.replace(COMMAND, (found, blanks: string | undefined) =>
    found === "#" ? "\\u0023" : `${blanks ?? ""}\\u003a`,
  );
}

type Writable = Pick<NodeJS.WriteStream, "write">;

/**
 * Disarms workflow commands in every string that is written to a stream from now on; bytes pass unchanged. Returns a
 * function that writes a string unchanged.
 */
function guardWorkflowCommands(stream: Writable): (text: string) => void {
  const write = stream.write.bind(stream) as (chunk: unknown, ...rest: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...rest: unknown[]) =>
    write(typeof chunk === "string" ? withoutWorkflowCommands(chunk) : chunk, ...rest);
  return (text) => void write(text);
}
