import { Chalk } from "chalk";
import { ImgbatchError } from "../contract/errors.ts";
import { EXIT_CODES } from "../contract/exit-codes.ts";
import { systemClock } from "../kernel/clock.ts";
import type { CommandResult, Output } from "./command.ts";
import { COMMANDS } from "./commands/table.ts";
import { createOutput } from "./output.ts";
import { type Invocation, readCommandLine } from "./program.ts";
import { errorDocument, errorLines, exitCodeOf, resultDocument, toImgbatchError } from "./report.ts";
import { watchSignals } from "./signals.ts";
import { mayColor, readAll, type Terminal } from "./terminal.ts";

type CommandInvocation = Extract<Invocation, { kind: "command" }>;

/** Runs the command line to its end and answers the exit code. Never throws. */
export async function runCli(argv: readonly string[], terminal: Terminal): Promise<number> {
  ignoreClosedPipe(terminal.stdout);
  ignoreClosedPipe(terminal.stderr);
  const wantsJson = isJsonWanted(argv);
  const print = (document: unknown) => terminal.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
  const fail = (thrown: unknown, verbose: boolean, color: boolean, paysAgain = false) => {
    const error = toImgbatchError(thrown);
    if (wantsJson) print(errorDocument(error));
    const { red } = new Chalk({ level: color ? 1 : 0 });
    terminal.stderr.write(
      errorLines(error, { verbose, red, paysAgain })
        .map((line) => `${line}\n`)
        .join(""),
    );
    return exitCodeOf(error);
  };

  // What nobody awaited still gets its document and its exit code.
  terminal.signals.on("uncaughtException", (error) => terminal.exit(fail(error, false, false)));

  let invocation: Invocation;
  try {
    invocation = readCommandLine(argv, COMMANDS);
  } catch (error) {
    return fail(error, false, false);
  }
  if (invocation.kind === "text") {
    if (wantsJson) print({ ok: true, text: invocation.text, exit_code: EXIT_CODES.ok.code });
    else terminal.stdout.write(invocation.text);
    return EXIT_CODES.ok.code;
  }
  if (invocation.kind === "help") {
    if (wantsJson) return fail(new ImgbatchError("USAGE", "Name a command."), false, false);
    terminal.stderr.write(invocation.text);
    return EXIT_CODES.usage.code;
  }
  try {
    const result = await runCommand(invocation, terminal);
    if (wantsJson) print(resultDocument(result));
    else terminal.stdout.write((result.lines ?? []).map((line) => `${line}\n`).join(""));
    return result.exitCode;
  } catch (error) {
    const { verbose, color } = invocation.global;
    const { paysAgain = false } = invocation.spec;
    return fail(error, verbose, mayColor(terminal.stderr, color), paysAgain);
  }
}

async function runCommand(invocation: CommandInvocation, terminal: Terminal): Promise<CommandResult> {
  const { spec, options, global } = invocation;
  if (spec.load === undefined) throw new ImgbatchError("INTERNAL", `The command ${spec.name} does nothing.`);
  const output: Output = await createOutput(global, terminal.stderr, systemClock);
  const watch = watchSignals(terminal);
  try {
    const { run } = await spec.load();
    return await run({
      global,
      options,
      arguments: invocation.arguments,
      cwd: terminal.cwd,
      signal: watch.signal,
      output,
      readStdin: () => readAll(terminal.stdin),
      connect: async (needs) => {
        const { connect } = await import("./connect.ts");
        const connection = await connect(global, needs, output, watch.signal);
        const { failed } = connection;
        failed?.addEventListener("abort", () => watch.abort(failed.reason), { once: true });
        return connection;
      },
    });
  } finally {
    output.settle();
    watch.stop();
  }
}

/** Known before the command line is understood, since that can fail too. */
function isJsonWanted(argv: readonly string[]): boolean {
  const end = argv.indexOf("--");
  return (end < 0 ? argv : argv.slice(0, end)).includes("--json");
}

/** Whoever reads may stop reading (`| head`): that is no failure of the command. */
function ignoreClosedPipe(stream: NodeJS.WriteStream): void {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}
