import { loadConfig } from "../../../config/load.ts";
import { dataDirectoryOf } from "../../../config/paths.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { readEnvironment } from "../../../environment.ts";
import type { CommandContext } from "../../command-line/command-context.ts";
import { textOption } from "../../command-line/option-values.ts";
import { type Flag, nextCommand } from "../../result/next-command.ts";
import { configChoice } from "../../service/config-choice.ts";
import { proofAt } from "../../service/running-service.ts";

/**
 * Returns the error of `--detach` where no service outlives the command. Its advice names the directory, and mentions a
 * service of this program that runs at the usual address on another one.
 */
export async function withoutService(context: CommandContext): Promise<ImgbatchError> {
  const { global, options, cwd } = context;
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const { server } = loadConfig(configChoice(context));
  const upstream = textOption(options, "upstream");
  const words: (string | Flag)[] = upstream === undefined ? [] : [{ flag: "--upstream" }, upstream];
  const start = `start one in another terminal (${nextCommand(global, "serve", ...words)}) and run the same command again`;
  const isElsewhere = (await proofAt(server)) !== null;
  const other = `the service on port ${server.port} has another data directory: name that one with --data`;
  const message = `--detach needs a service that outlives this command, and none runs on ${directory}.`;
  return new ImgbatchError("USAGE", message, {
    param: "--detach",
    advice: isElsewhere ? other : `${start}, or name a service with --base-url`,
  });
}
