import { ITEM_STATUSES } from "../../../contract/statuses.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking, target } from "../shared-options.ts";

export const items: CommandSpec = {
  name: "items",
  summary: "list the images of a batch or a run with their outcome",
  arguments: [target],
  options: [
    {
      flags: "--status <status>",
      description: "only pending, success or failed items",
      choices: [...ITEM_STATUSES, "all"],
    },
    { flags: "--all", description: "list every item, not only the first 100" },
  ],
  examples: ["imgbatch items prompts-images --status failed"],
  exits: asking,
  load: () => import("./run.ts"),
};
