import { randomUUID } from "node:crypto";
import { environmentWith, loadConfig } from "../../config.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { createLog, LOG_LEVELS } from "../../kernel/pino-log.ts";
import type { CommandContext, CommandResult } from "../command.ts";
import { MARK, serviceVariables } from "../exec/child-environment.ts";
import { type Child, runChild } from "../exec/run-child.ts";
import { startPassingService } from "../exec/service.ts";
import { durationOption, textOption, wholeOption } from "../option-values.ts";
import { withSimulation } from "../simulation.ts";

/** `imgbatch exec`: a service for as long as one command runs. Says nothing on standard output. */
export async function run(context: CommandContext): Promise<CommandResult> {
  const { cwd, global, options, output, signal } = context;
  const config = withSimulation(loadConfig({ file: global.config, cwd }), textOption(options, "simulate"));
  const service = await startPassingService({
    config,
    dataDirectory: global.data,
    address: {
      host: textOption(options, "host") ?? "127.0.0.1",
      port: wholeOption(options, "port", "--port", { min: 0, max: 65_535 }) ?? 0,
    },
    graceMs: durationOption(options, "grace", "--grace") ?? 0,
    log: createLog({
      level: logLevel(options),
      forPeople: true,
      write: (line) => output.note(line.trimEnd()),
    }),
  });
  let child: Child | null = null;
  // A second signal ends this process at once, and then nothing else is left to tidy up.
  const onExit = () => {
    child?.kill();
    service.remove();
  };
  process.once("exit", onExit);
  try {
    signal.throwIfAborted();
    const mark = randomUUID();
    const inherited = environmentWith({});
    const variables = serviceVariables(service, inherited.NO_PROXY ?? inherited.no_proxy);
    output.detail(`${service.url} (data: ${service.dataDirectory})`);
    child = runChild(context.arguments, {
      cwd,
      env: environmentWith({ ...variables, [MARK]: mark }),
      mark,
      isOnTerminal: [process.stdin, process.stdout, process.stderr].some((stream) => stream.isTTY),
      onProblem: output.note,
    });
    return { exitCode: await child.ended, json: null };
  } finally {
    await service.close();
    process.off("exit", onExit);
  }
}

function logLevel(options: CommandContext["options"]): (typeof LOG_LEVELS)[number] {
  const text = textOption(options, "logLevel") ?? "warn";
  const level = LOG_LEVELS.find((each) => each === text);
  if (level !== undefined) return level;
  throw new ImgbatchError("USAGE", `--log-level: use one of ${LOG_LEVELS.join(", ")}.`, {
    param: "--log-level",
  });
}
