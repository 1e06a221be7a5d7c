import { listModels } from "../../client/batches.ts";
import { listRealtimeModels } from "../../client/realtime.ts";
import { costText, FREE_DRAWINGS, formatUsd } from "../../kernel/money.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { withService } from "../connect/connect.ts";
import { flagOption } from "../options.ts";
import { asking } from "./shared-options.ts";

export const command: CommandDetails = {
  options: [{ flags: "--realtime", description: "list the models of `imgbatch generate` instead" }],
  examples: ["imgbatch models --json", "imgbatch models --realtime"],
  exits: asking,
  run,
};

/** `imgbatch models`: lists the key's models, for batches or for real time, with the price of an image. */
function run(context: CommandContext): Promise<CommandResult> {
  return withService(context, { workers: false }, async ({ http }) => {
    const { signal, options } = context;
    const models = flagOption(options, "realtime")
      ? (await listRealtimeModels(http, signal)).map(({ id, costsMicroUsd, isPlay, raw }) => ({
          id,
          raw,
          cost: isPlay
            ? FREE_DRAWINGS
            : Object.entries(costsMicroUsd ?? {})
                .map(([size, micros]) => `${size} ${formatUsd(micros)}`)
                .join("  "),
        }))
      : (await listModels(http, signal)).map(({ id, imageCostMicroUsd: micros, isPlay, raw }) => ({
          id,
          raw,
          cost: micros === null ? "" : costText({ micros, isPlay }, "exact"),
        }));
    return {
      json: { models: models.map(({ raw }) => raw) },
      lines: models.map(({ id, cost }) => (cost === "" ? id : `${id}  ${cost}`)),
    };
  });
}
