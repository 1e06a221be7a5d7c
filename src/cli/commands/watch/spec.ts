import type { CommandSpec } from "../../command-line/command-spec.ts";
import { intervalOption, targets, timeoutOption, waiting } from "../shared-options.ts";

export const watch: CommandSpec = {
  name: "watch",
  summary: "wait and show progress; without an id, of every running batch",
  arguments: [{ ...targets, name: "[id|dir...]" }],
  options: [timeoutOption, intervalOption],
  examples: ["imgbatch watch", "imgbatch watch prompts-images"],
  exits: [...waiting, "money", "saving"],
  load: () => import("./run.ts"),
};
