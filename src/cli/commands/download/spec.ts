import type { CommandSpec } from "../../command-line/command-spec.ts";
import { reportOptions, target, waiting } from "../shared-options.ts";

export const download: CommandSpec = {
  name: "download",
  summary: "fetch the images of an ended batch, or one of them; resumes and verifies",
  arguments: [target],
  options: [
    { flags: "-o, --output <path>", description: "the directory; with --zip or --item, the file" },
    { flags: "--zip", description: "the ZIP itself" },
    { flags: "--item <id>", description: "one item's image" },
    { flags: "--index <n>", description: "with --item: which of its images, from 0", default: "0" },
    { flags: "--force", description: "with --zip or --item: replace a file of other content" },
    ...reportOptions,
  ],
  examples: ["imgbatch download out", "imgbatch download imgbatch_… --item cat --output cat.png"],
  exits: [...waiting.filter((name) => name !== "timeout"), "saving"],
  resumes: true,
  load: () => import("./run.ts"),
};
