import type { CommandSpec } from "../../command-line/command-spec.ts";
import { running, runOptions } from "../shared-options.ts";

export const retry: CommandSpec = {
  name: "retry",
  summary: "make the failed images of a run again, into the same directory; run it again to resume",
  arguments: [{ name: "<dir>", description: "the output directory of a run" }],
  options: [
    {
      flags: "--include-refused",
      description:
        "also retry images that were refused because of their prompt (SAFETY_BLOCKED, INVALID_ARGUMENT, a policy)",
    },
    {
      flags: "--include-lost",
      description:
        "also make images again that were made and paid, or may have been, but can no longer be fetched; this is paid again",
    },
    {
      flags: "--here",
      description:
        "go on with this service, which does not know batches of the run (its data are new, or it is another service or key); with --include-lost, only the missing images are made, and paid again if the other service still runs",
    },
    { flags: "--dry-run", description: "count the images and estimate the cost; submit nothing" },
    ...runOptions,
  ],
  examples: [
    "imgbatch retry prompts-images",
    "imgbatch retry prompts-images --max-cost 1",
    "imgbatch retry --include-lost --here prompts-images",
  ],
  exits: running,
  resumes: true,
  load: () => import("./run.ts"),
};
