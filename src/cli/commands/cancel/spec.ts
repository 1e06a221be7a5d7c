import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking, target } from "../shared-options.ts";

export const cancel: CommandSpec = {
  name: "cancel",
  summary: "cancel a batch, or all batches of a run; finished images stay and are billed",
  arguments: [target],
  examples: ["imgbatch cancel prompts-images"],
  exits: asking,
  load: () => import("./run.ts"),
};
