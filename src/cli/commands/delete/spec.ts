import type { CommandSpec } from "../../command-line/command-spec.ts";
import { askingOf, target } from "../shared-options.ts";

export const remove: CommandSpec = {
  name: "delete",
  summary: "delete from the service what an ended batch left there; files here stay",
  arguments: [target],
  options: [
    { flags: "--outputs", description: "the image files; the record stays" },
    { flags: "--record", description: "the entry in your list; with --outputs, both" },
  ],
  examples: ["imgbatch delete prompts-images --outputs"],
  exits: askingOf,
  load: () => import("./run.ts"),
};
