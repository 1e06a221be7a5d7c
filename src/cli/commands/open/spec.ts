import type { CommandSpec } from "../../command-line/command-spec.ts";

export const open: CommandSpec = {
  name: "open",
  summary: "open the contact sheet of a run in the browser; without a desktop, print its path",
  arguments: [
    {
      name: "[dir]",
      description: "the output directory of a run; without it, this one, else the newest run in it",
    },
  ],
  examples: ["imgbatch open", "imgbatch open prompts-images"],
  exits: ["conflict", "saving"],
  load: () => import("./run.ts"),
};
