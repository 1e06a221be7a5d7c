import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking, target } from "../shared-options.ts";

export const remove: CommandSpec = {
  name: "delete",
  summary: "delete the images or the record of an ended batch from the service; local files stay",
  arguments: [target],
  options: [
    { flags: "--outputs", description: "delete the image files; the record stays" },
    { flags: "--record", description: "delete the entry in your list; with --outputs, both" },
  ],
  examples: ["imgbatch delete prompts-images --outputs"],
  exits: asking,
  load: () => import("./run.ts"),
};
