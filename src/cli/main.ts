import { readActionsEnvironment } from "../environment.ts";
import { readVersion } from "../kernel/version.ts";
import type { LoadView } from "./terminal/terminal.ts";

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
  const { runCli } = await import("./run-cli.ts");
  let writeCommand: ((text: string) => void) | undefined;
  if (readActionsEnvironment() !== null) {
    const { guardWorkflowCommands } = await import("./terminal/workflow-commands.ts");
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
