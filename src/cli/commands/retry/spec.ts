import type { CommandSpec } from "../../command-line/command-spec.ts";
import { running, runOptions } from "../shared-options.ts";

export const retry: CommandSpec = {
  name: "retry",
  summary: "make the failed images of a run anew, into the same directory; run again to resume",
  arguments: [{ name: "<dir>", description: "the output directory of a run" }],
  options: [
    {
      flags: "--include-refused",
      description: "also what was refused for its prompt (SAFETY_BLOCKED, INVALID_ARGUMENT, a policy)",
    },
    {
      flags: "--include-lost",
      description: "also what was made and paid, but cannot be fetched any more; paid again",
    },
    { flags: "--dry-run", description: "count and estimate; submit nothing" },
    ...runOptions,
  ],
  examples: ["imgbatch retry prompts-images", "imgbatch retry prompts-images --max-cost 1"],
  exits: running,
  resumes: true,
  load: () => import("./run.ts"),
};
