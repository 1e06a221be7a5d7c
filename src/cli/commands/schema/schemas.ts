import { z } from "zod";

interface PublishedSchema {
  /** The thing that the schema describes. */
  title: string;
  load(): Promise<object>;
}

/** Every schema that `imgbatch schema` prints, by its name. Each is loaded only when it is needed. */
export const SCHEMAS: Readonly<Record<string, PublishedSchema>> = {
  prompts: {
    title: "A line of a prompt file",
    load: async () => toJsonSchema((await import("../../../runs/plan/prompt-schema.ts")).promptSchema),
  },
  config: {
    title: "imgbatch.config.json",
    load: async () => toJsonSchema((await import("../../../config/schema.ts")).configSchema),
  },
  result: {
    title: "A line of results.jsonl",
    load: async () => toJsonSchema((await import("../../../runs/directory/results.ts")).resultSchema),
  },
  event: {
    title: "A line of --events",
    load: async () => toJsonSchema((await import("../../../contract/events.ts")).eventLineSchema),
  },
};

/** The JSON Schema (2020-12) of the input: fields with a default are optional. */
function toJsonSchema(schema: z.ZodType): object {
  return z.toJSONSchema(schema, { io: "input" });
}
