import type { CommandSpec } from "../../command-line/command-spec.ts";
import { reportOptions, target, waiting } from "../shared-options.ts";

export const download: CommandSpec = {
  name: "download",
  summary: "download and verify the images of an ended batch, or one of them; run it again to resume",
  arguments: [target],
  options: [
    {
      flags: "-o, --output <path>",
      description: "the directory for the images; with --zip or --item, the file",
      default: "the directory of the run; for an id, one of that name",
    },
    { flags: "--zip", description: "download the ZIP without unpacking it" },
    { flags: "--item <id>", description: "download the image of this item only" },
    { flags: "--index <n>", description: "with --item: which of its images, counted from 0", default: "0" },
    { flags: "--force", description: "with --zip or --item: replace an existing file with other content" },
    ...reportOptions,
  ],
  examples: ["imgbatch download out", "imgbatch download imgbatch_… --item cat --output cat.png"],
  exits: [...waiting.filter((name) => name !== "timeout"), "saving"],
  resumes: true,
  load: () => import("./run.ts"),
};
