import type { CommandSpec } from "../../command-line/command-spec.ts";

export const init: CommandSpec = {
  name: "init",
  summary: "put prompts, a configuration, or a CI file to start from into a directory",
  arguments: [{ name: "[dir]", description: "the directory, this one if left out" }],
  options: [
    {
      flags: "--template <name>",
      description: "starter (prompts and configuration), github, gitlab, script or all; may be repeated",
      default: "starter",
      repeatable: true,
      choices: ["starter", "github", "gitlab", "script", "all"],
    },
    { flags: "--force", description: "replace files that are there" },
  ],
  examples: ["imgbatch init", "imgbatch init --template github"],
  exits: ["saving"],
  load: () => import("./run.ts"),
};
