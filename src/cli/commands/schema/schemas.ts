import { z } from "zod";

interface PublishedSchema {
  /** What the schema is of. */
  title: string;
  load(): Promise<object>;
}

/** Every schema that `imgbatch schema` prints, by its name. Each is loaded alone. */
export const SCHEMAS: Readonly<Record<string, PublishedSchema>> = {
  prompts: {
    title: "A line of a prompt file",
    load: async () => toJsonSchema((await import("../../../runs/prompts/prompt-schema.ts")).promptSchema),
  },
  config: {
    title: "imgbatch.config.json",
    load: async () => toJsonSchema((await import("../../../config/schema.ts")).configSchema),
  },
  result: {
    title: "A line of results.jsonl",
    load: async () => toJsonSchema((await import("../../../runs/directory/result-schema.ts")).resultSchema),
  },
  event: {
    title: "A line of --events",
    load: async () => toJsonSchema((await import("../../../contract/events.ts")).eventLineSchema),
  },
};

/** JSON Schema 2020-12 of what may be written: what has a default may be left out. */
function toJsonSchema(schema: z.ZodType): object {
  return z.toJSONSchema(schema, { io: "input" });
}
