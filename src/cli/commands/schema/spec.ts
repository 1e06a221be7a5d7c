import type { CommandSpec } from "../../command-line/command-spec.ts";

export const schema: CommandSpec = {
  name: "schema",
  summary: "print a JSON Schema: prompts, config, result, event or openapi",
  arguments: [
    {
      name: "[name]",
      description: "which one; without it, their names",
      choices: ["prompts", "config", "result", "event", "openapi"],
    },
  ],
  examples: ["imgbatch schema prompts > prompts.schema.json"],
  json: false,
  load: () => import("./run.ts"),
};
