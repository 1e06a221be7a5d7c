import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking, targets } from "../shared-options.ts";

export const status: CommandSpec = {
  name: "status",
  summary: "show how batches stand now; never waits",
  arguments: [targets],
  examples: ["imgbatch status prompts-images", "imgbatch status imgbatch_… --json"],
  exits: asking,
  load: () => import("./run.ts"),
};
