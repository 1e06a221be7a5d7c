import { resolve } from "node:path";
import { ImgbatchError } from "../../../contract/errors.ts";
import type { CommandContext } from "../../command-line/command-context.ts";
import * as read from "../../command-line/option-values.ts";
import { type RunOptions, readRunOptions } from "../../runs/run-options.ts";
import { resolveTarget } from "../../runs/targets.ts";
import { rememberedUpstream } from "../../runs/upstream.ts";
import type { ServiceNeeds } from "../../service/connection.ts";

/** The options of `retry`, checked. */
export interface RetryCommandOptions extends RunOptions {
  dir: string;
  /** The directory as typed. */
  shownDir: string;
  /** The upstream of the run. */
  needs: Pick<ServiceNeeds, "upstream">;
  withRefused: boolean;
  /** Also make images again that the service made but can no longer deliver. */
  withLost: boolean;
  /** Go on with this service although it does not know batches of the run. */
  isHere: boolean;
  dryRun: boolean;
}

/** Throws `USAGE` for the first wrong option, and for an id instead of a directory. */
export async function readRetryOptions(context: CommandContext): Promise<RetryCommandOptions> {
  const { options, cwd } = context;
  const shownDir = context.arguments[0] ?? "";
  const target = await resolveTarget(shownDir, cwd);
  const { run } = target;
  if (run === null) {
    const message = `retry needs the output directory of the run, not the id ${JSON.stringify(shownDir)}: a service returns only the beginning of each prompt.`;
    throw new ImgbatchError("USAGE", message);
  }
  return {
    dir: resolve(cwd, shownDir),
    shownDir,
    needs: rememberedUpstream([target]),
    withRefused: read.flagOption(options, "includeRefused"),
    withLost: read.flagOption(options, "includeLost"),
    isHere: read.flagOption(options, "here"),
    dryRun: read.flagOption(options, "dryRun"),
    ...readRunOptions(options),
  };
}
