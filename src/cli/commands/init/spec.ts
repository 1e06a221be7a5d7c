import type { CommandSpec } from "../../command-line/command-spec.ts";
import { upstreamOption } from "../shared-options.ts";

export const init: CommandSpec = {
  name: "init",
  summary: "write example prompts, a configuration or a CI file into a directory",
  arguments: [{ name: "[dir]", description: "the directory; without it, this one" }],
  options: [
    {
      flags: "--template <name>",
      description:
        "starter (prompts and configuration), github, gitlab, script, comfyui, compose or all; may be repeated",
      default: "starter",
      repeatable: true,
      choices: ["starter", "github", "gitlab", "script", "comfyui", "compose", "all"],
    },
    { ...upstreamOption, description: `write the configuration for ${upstreamOption.description}` },
    { flags: "--force", description: "replace existing files" },
  ],
  examples: ["imgbatch init", "imgbatch init --upstream google", "imgbatch init --template github"],
  exits: ["saving"],
  load: () => import("./run.ts"),
};
