import type { CommandSpec } from "../../command-line/command-spec.ts";

export const schema: CommandSpec = {
  name: "schema",
  summary: "print a JSON Schema (prompts, config, result, event) or the OpenAPI document (openapi)",
  arguments: [
    {
      name: "[name]",
      description: "the name of a schema; without it, the names are printed",
      choices: ["prompts", "config", "result", "event", "openapi"],
    },
  ],
  examples: ["imgbatch schema prompts > prompts.schema.json"],
  json: false,
  load: () => import("./run.ts"),
};
