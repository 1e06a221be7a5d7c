import { deleteOutputs, deleteRecord } from "../../client/batches.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { withService } from "../connect/connect.ts";
import * as option from "../options.ts";
import { forEachBatch, ownIds, rememberedUpstream, resolveTarget, withUnknown } from "../targets.ts";
import { asking, target } from "./shared-options.ts";

const options = {
  outputs: option.flag({ flags: "--outputs", description: "delete the image files; the record stays" }),
  record: option.flag({
    flags: "--record",
    description: "delete the entry in your list; with --outputs, both",
  }),
};

export const command = defineCommand({
  arguments: [target],
  options,
  examples: ["imgbatch delete prompts-images --outputs"],
  exits: asking,
  run,
});

/** `imgbatch delete`: deletes the images of ended batches, their records, or both, from the service. */
async function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { output, signal } = context;
  const { outputs, record } = context.options;
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
