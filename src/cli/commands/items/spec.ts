import { ITEM_STATUSES } from "../../../contract/statuses.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { askingOf, target } from "../shared-options.ts";

export const items: CommandSpec = {
  name: "items",
  summary: "what became of each image of a batch or a run",
  arguments: [target],
  options: [
    {
      flags: "--status <status>",
      description: "only pending, success or failed ones",
      choices: [...ITEM_STATUSES, "all"],
    },
    { flags: "--all", description: "all of them, not the first 100 only" },
  ],
  examples: ["imgbatch items prompts-images --status failed"],
  exits: askingOf,
  load: () => import("./run.ts"),
};
