import { deleteOutputs, deleteRecord } from "../../client/batches.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { withService } from "../connect/connect.ts";
import { flagOption } from "../options.ts";
import { forEachBatch, ownIds, rememberedUpstream, resolveTarget, withUnknown } from "../targets.ts";
import { asking, target } from "./shared-options.ts";

export const command: CommandDetails = {
  arguments: [target],
  options: [
    { flags: "--outputs", description: "delete the image files; the record stays" },
    { flags: "--record", description: "delete the entry in your list; with --outputs, both" },
  ],
  examples: ["imgbatch delete prompts-images --outputs"],
  exits: asking,
  run,
};

/** `imgbatch delete`: deletes the images of ended batches, their records, or both, from the service. */
async function run(context: CommandContext): Promise<CommandResult> {
  const { options, output, signal } = context;
  const outputs = flagOption(options, "outputs");
  const record = flagOption(options, "record");
  if (!outputs && !record) {
    const message =
      "Say what to delete: --outputs (the image files), --record (the entry in your list), or both.";
    throw new ImgbatchError("USAGE", message);
  }
  const target = await resolveTarget(context.arguments[0] ?? "", context.cwd);
  const needs = { workers: true, images: false, ...rememberedUpstream([target]) };
  return withService(context, needs, async (service) => {
    const own = ownIds(target, service);
    const { http } = service;
    const remove = async (id: string) => {
      if (outputs) await deleteOutputs(http, id, signal);
      if (record) await deleteRecord(http, id, signal);
      return id;
    };
    const what = [...(outputs ? ["images"] : []), ...(record ? ["record"] : [])].join(" and ");
    const ids = await forEachBatch(own, remove, (id) => `${what} of ${id} deleted`);
    for (const id of ids) output.note(`${what} of ${id} deleted`);
    if (target.run !== null) output.note(`the files in ${target.argument} are untouched`);
    const json = { deleted: ids, outputs, record };
    return withUnknown(target, service, context, { json, lines: ids });
  });
}
