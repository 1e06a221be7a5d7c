import type { CommandSpec } from "../../command-line/command-spec.ts";
import { intervalOption, targets, timeoutOption, waiting } from "../shared-options.ts";

export const watch: CommandSpec = {
  name: "watch",
  summary: "the same, and show how far they are; without an id, all that run",
  arguments: [{ ...targets, name: "[id|dir...]" }],
  options: [timeoutOption, intervalOption],
  examples: ["imgbatch watch", "imgbatch watch prompts-images"],
  exits: [...waiting, "saving"],
  load: () => import("./run.ts"),
};
