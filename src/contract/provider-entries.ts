import { z } from "zod";

const httpUrl = z.url({ protocol: /^https?$/, error: "must be like https://host or https://host/path" });
const variable = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be the name of an environment variable, never the secret itself");
const header = z.string().regex(/^[A-Za-z0-9-]+$/, "must be the name of a header");
/** Merged into the body of each request. */
const extra = z.record(z.string(), z.json()).default({});

/** The fields of every provider entry. */
const anyProvider = {
  name: z.string().min(1),
  rateMultiplier: z.number().min(0).default(1),
};

/** The fields of every entry whose images another program makes. `concurrency` and `timeoutSeconds` have defaults by type. */
const upstream = {
  ...anyProvider,
  preset: z
    .string()
    .nullable()
    .default(null)
    .describe(
      "the preset whose settings it has where it has none of its own: `imgbatch init --upstream NAME`",
    ),
  models: z
    .union([z.array(z.string()), z.record(z.string(), z.string().min(1))], {
      error: 'must be a list of model ids, ["*"], or an object such as {"our-id": "upstream-id"}',
    })
    .default(["*"])
    .describe("the models that it serves: ids, or our ids with the ids that the upstream knows"),
  requestsPerMinute: z.int().min(1).nullable().default(null),
  free: z.boolean().default(false).describe("its images cost nothing"),
  sizes: z
    .array(z.string().regex(/^[1-9]\d{1,4}x[1-9]\d{1,4}$/, 'must be like "1024x1024"'))
    .min(1)
    .nullable()
    .default(null)
    .describe("the sizes that it takes; the nearest by ratio, then by area, is sent. null: any"),
  for: z
    .array(z.enum(["batches", "realtime"]))
    .min(1)
    .default(["batches", "realtime"]),
};
const remote = {
  ...upstream,
  baseUrl: httpUrl,
  concurrency: z.int().min(1).default(4),
  timeoutSeconds: z
    .number()
    .positive()
    .nullable()
    .default(null)
    .describe("the time limit of one image; null: 120, 180 or 300 seconds for at most 1K, 2K and 4K"),
  apiKeyEnv: variable.nullable().default(null).describe("the environment variable that holds the key"),
};
const onThisMachine = {
  ...upstream,
  concurrency: z.int().min(1).default(1),
  timeoutSeconds: z.number().positive().default(600).describe("the time limit of one image"),
};

const proceduralSchema = z.strictObject({
  type: z.literal("procedural"),
  ...anyProvider,
  models: z.array(z.string()).default(["*"]),
  concurrency: z.int().min(1).default(2),
});

/** The vendor's own `generateContent`, or another imgbatch. */
const nativeSchema = z.strictObject({
  type: z.literal("native"),
  ...remote,
  apiVersion: z.string().min(1).default("v1beta"),
  keyHeader: header.default("x-vendorx-api-key"),
});

/** The fields of an entry whose upstream makes many images as a job. */
const jobs = {
  ...remote,
  concurrency: z.int().min(1).default(50).describe("how many jobs run at once"),
  timeoutSeconds: z
    .number()
    .positive()
    .nullable()
    .default(null)
    .describe("the time limit of one call, not of a job; null: 60 seconds"),
  for: z
    .array(z.enum(["batches"], { error: 'must be "batches": jobs are too slow for real time' }))
    .min(1)
    .default(["batches"]),
  jobImages: z.int().min(1).max(10_000).default(100).describe("the most images of one job"),
  jobBytes: z.int().min(1).default(180_000_000).describe("the most bytes of input of one job"),
  pollSeconds: z
    .number()
    .positive()
    .default(30)
    .describe("the pause between two looks at a job; it grows to 5 minutes for old jobs"),
  jobHours: z.number().positive().default(24).describe("a job that takes longer is stopped"),
  lostJobMinutes: z
    .number()
    .min(0)
    .default(10)
    .describe("how long a job is looked for whose creation was not answered, before another one is created"),
};

/** The vendor's own files and batch jobs. */
const nativeBatchSchema = z.strictObject({
  type: z.literal("native-batch"),
  ...jobs,
  apiVersion: z.string().min(1).default("v1beta"),
  keyHeader: header.default("x-vendorx-api-key"),
});

const openaiAuth = header
  .default("bearer")
  .describe('"bearer", or the name of the header that carries the key');

/** OpenAI Images and the services that speak it. */
const openaiSchema = z.strictObject({
  type: z.literal("openai"),
  ...remote,
  path: z.string().startsWith("/").default("/images/generations"),
  editPath: z.string().startsWith("/").default("/images/edits"),
  sizeAs: z.enum(["size", "width_height", "aspect_ratio"]).default("size"),
  edits: z.enum(["multipart", "json", "input_references", "none"]).default("multipart"),
  responseFormat: z.enum(["b64_json", "base64", "url", "omit"]).default("b64_json"),
  resolution: z
    .enum(["lower", "upper"])
    .nullable()
    .default(null)
    .describe("beside `aspect_ratio`, sizes other than 1K are asked for as `resolution`: 2k, or 2K"),
  takes: z
    .array(z.enum(["seed", "negative_prompt"]))
    .default([])
    .describe("the fields that it takes besides those of OpenAI"),
  auth: openaiAuth,
  extra,
});

/** OpenAI's batch jobs for images. */
const openaiBatchSchema = z.strictObject({
  type: z.literal("openai-batch"),
  ...jobs,
  auth: openaiAuth,
  extra,
});

/** A1111, Forge, SD.Next, sd-server: an image server on the user's own graphics card. */
const sdapiSchema = z.strictObject({
  type: z.literal("sdapi"),
  ...onThisMachine,
  baseUrl: httpUrl.default("http://127.0.0.1:7860"),
  userEnv: variable.nullable().default(null),
  passwordEnv: variable.nullable().default(null),
  extra: extra.describe('added to the request, such as {"steps": 20, "negative_prompt": "text"}'),
});

/** Any program of one's own. */
const commandSchema = z.strictObject({
  type: z.literal("command"),
  ...onThisMachine,
  argv: z.array(z.string()).min(1).describe("the program and its arguments; no shell reads them"),
  env: z.array(variable).default([]).describe("the environment variables that the program may see"),
});

/** An entry of `providers` in the configuration: one schema for each type. */
export const providerEntrySchema = z.discriminatedUnion("type", [
  proceduralSchema,
  nativeSchema,
  nativeBatchSchema,
  openaiSchema,
  openaiBatchSchema,
  sdapiSchema,
  commandSchema,
]);

/** An entry of a configuration with `replay`: it answers in place of another one, with what was recorded in a directory. */
export interface ReplayEntry {
  type: "replay";
  name: string;
  /** The entry that it stands for. */
  of: z.infer<typeof providerEntrySchema>;
  directory: string;
  /** Whether the other one is asked for what is missing, and its answer is kept. */
  records: boolean;
  rateMultiplier: number;
}

export type ProviderEntry = z.infer<typeof providerEntrySchema> | ReplayEntry;
export type ProviderType = ProviderEntry["type"];
/** The entry of a provider of one type. */
export type EntryOf<Type extends ProviderType> = Extract<ProviderEntry, { type: Type }>;
/** The entry of a provider whose images another program makes. */
export type UpstreamEntry = Exclude<ProviderEntry, EntryOf<"procedural" | "replay">>;

/** The entry of a provider whose upstream makes many images as a job. */
export type JobEntry = EntryOf<"native-batch" | "openai-batch">;
