import type { CommandSpec } from "../../command-line/command-spec.ts";
import { intervalOption, targets, timeoutOption, waiting } from "../shared-options.ts";

export const wait: CommandSpec = {
  name: "wait",
  summary: "wait until batches have ended; the exit code reports the outcome",
  arguments: [targets],
  options: [timeoutOption, intervalOption],
  examples: ["imgbatch wait prompts-images --timeout 45m"],
  exits: [...waiting, "money", "saving"],
  load: () => import("./run.ts"),
};
