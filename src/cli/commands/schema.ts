import { z } from "zod";
import { ImgbatchError } from "../../contract/errors.ts";
import { DEFAULT_LIMITS } from "../../contract/limits.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";

export const command: CommandDetails = {
  arguments: [
    {
      name: "[name]",
      description: "the name of a schema; without it, the names are printed",
      choices: ["prompts", "config", "catalogue", "result", "event", "openapi"],
    },
  ],
  examples: ["imgbatch schema prompts > prompts.schema.json"],
  json: false,
  run,
};

const OPENAPI = "openapi";

/**
 * `imgbatch schema`: prints a JSON Schema, or the OpenAPI document of a service with the default limits. Without a name
 * it lists the names.
 */
async function run({ arguments: [name] }: CommandContext): Promise<CommandResult> {
  const names = [...Object.keys(SCHEMAS), OPENAPI];
  if (name === undefined) return printed(names);
  if (name === OPENAPI) {
    const { buildOpenApi } = await import("../../server/openapi/document.ts");
    return printed(document(buildOpenApi(DEFAULT_LIMITS)));
  }
  const found = Object.hasOwn(SCHEMAS, name) ? SCHEMAS[name] : undefined;
  if (found === undefined)
    throw new ImgbatchError(
      "USAGE",
      `${JSON.stringify(name)} is not the name of a schema: use ${names.join(", ")}.`,
    );
  const { $schema, ...rest } = (await found.load()) as { $schema?: unknown };
  return printed(document({ $schema, title: found.title, ...rest }));
}

function document(value: object): string[] {
  return JSON.stringify(value, null, 2).split("\n");
}

function printed(lines: readonly string[]): CommandResult {
  return { json: null, lines };
}

interface PublishedSchema {
  /** The thing that the schema describes. */
  title: string;
  load(): Promise<object>;
}

/** Every schema that `imgbatch schema` prints, by its name. Each is loaded only when it is needed. */
const SCHEMAS: Readonly<Record<string, PublishedSchema>> = {
  prompts: {
    title: "A line of a prompt file",
    load: async () => toJsonSchema((await import("../../runs/plan/prompt-schema.ts")).promptSchema),
  },
  config: {
    title: "imgbatch.config.json",
    load: async () => toJsonSchema((await import("../../config/schema.ts")).writtenConfigSchema),
  },
  catalogue: {
    title: "A vendor in src/providers/catalogue",
    load: async () => toJsonSchema((await import("../../providers/catalogue/schema.ts")).vendorSchema),
  },
  result: {
    title: "A line of results.jsonl",
    load: async () => toJsonSchema((await import("../../runs/directory/results.ts")).resultSchema),
  },
  event: {
    title: "A line of --events",
    load: async () => toJsonSchema((await import("../../contract/events.ts")).eventLineSchema),
  },
};

/** The JSON Schema (2020-12) of the input: fields with a default are optional. */
function toJsonSchema(schema: z.ZodType): object {
  return z.toJSONSchema(schema, { io: "input" });
}
