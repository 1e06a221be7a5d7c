import { randomUUID } from "node:crypto";
import { ImgbatchError } from "../../../contract/errors.ts";
import { environmentWith } from "../../../environment.ts";
import { microsToDecimal } from "../../../kernel/money.ts";
import { MARK, startGuard } from "../../../processes/guard.ts";
import { createLog, LOG_LEVELS } from "../../../service/pino-log.ts";
import type { CommandContext, CommandResult } from "../../command-line/command-context.ts";
import {
  choiceOption,
  durationOption,
  textOption,
  usdOption,
  wholeOption,
} from "../../command-line/option-values.ts";
import { nextCommand } from "../../result/next-command.ts";
import { serviceConfig } from "../../service/service-config.ts";
import { serviceVariables } from "./child-environment.ts";
import { startOwnService } from "./own-service.ts";
import { type Child, runChild } from "./run-child.ts";

/** `imgbatch exec`: runs a service for the time of one command. Writes nothing to standard output itself. */
export async function run(context: CommandContext): Promise<CommandResult> {
  const { cwd, clock, global, options, output, signal, takeSignals } = context;
  const budgetMicroUsd = usdOption(options, "maxCost");
  if (budgetMicroUsd !== undefined && global.data !== undefined) {
    const message = `--max-cost is for a service with a data directory of its own, not with --data: there the account pays.`;
    const advice = `${nextCommand(global, "admin", "accounts", "top-up", "default", microsToDecimal(budgetMicroUsd))}, or leave out --data`;
    throw new ImgbatchError("USAGE", message, { param: "--max-cost", advice });
  }
  const config = serviceConfig(context, { mayLackKeys: false });
  const service = await startOwnService({
    config,
    budgetMicroUsd: budgetMicroUsd ?? 0,
    dataDirectory: global.data,
    address: {
      host: textOption(options, "host") ?? "127.0.0.1",
      port: wholeOption(options, "port", { min: 0, max: 65_535 }) ?? 0,
    },
    graceMs: durationOption(options, "grace") ?? 0,
    nowMs: clock.nowMs(),
    note: output.note,
    log: createLog({
      level: choiceOption(options, "logLevel", LOG_LEVELS) ?? "warn",
      forPeople: true,
      write: (line) => output.note(line.trimEnd()),
    }),
  });
  const mark = randomUUID();
  const leftovers = { mark, directory: service.isOwn ? service.dataDirectory : null };
  const guard = startGuard();
  let child: Child | null = null;
  const onExit = () => {
    child?.kill();
    service.remove();
  };
  process.once("exit", onExit);
  try {
    guard.update([leftovers]);
    signal.throwIfAborted();
    const inherited = environmentWith({});
    const variables = serviceVariables(service, inherited.NO_PROXY ?? inherited.no_proxy);
    output.detail(`${service.url} (data: ${service.dataDirectory})`);
    child = runChild(context.arguments, {
      cwd,
      env: environmentWith({ ...variables, [MARK]: mark }),
      mark,
      clock,
      isOnTerminal: [process.stdin, process.stdout, process.stderr].some((stream) => stream.isTTY),
      onProblem: output.note,
    });
    // `runChild` handles signals by now. Without any handler, a signal would end this process.
    takeSignals();
    const { pid, group } = child;
    if (pid !== null) guard.update([{ ...leftovers, child: { pid, group } }]);
    return { exitCode: await child.ended, json: null };
  } finally {
    try {
      await service.close();
    } finally {
      process.off("exit", onExit);
      await guard.dismiss();
    }
  }
}
