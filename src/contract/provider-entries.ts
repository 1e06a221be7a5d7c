import { z } from "zod";

const httpUrl = z
  .url({ protocol: /^https?$/, error: "must be like https://host or https://host/path" })
  .refine((text) => !/^https?:\/*[^/?#]*@|#/i.test(text), {
    error:
      "must have no user, password or fragment; secrets come from environment variables, such as that of apiKeyEnv",
  });
const variable = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be the name of an environment variable, never the secret itself");
const header = z.string().regex(/^[A-Za-z0-9-]+$/, "must be the name of a header");
/** Merged into the body of each request. */
const extra = z.record(z.string(), z.json()).default({});

/** Sizes in pixels: a list, or the bounds of sizes whose sides are multiples of a number. */
export const pixelSizes = z.union(
  [
    z.array(z.string().regex(/^[1-9]\d{1,4}x[1-9]\d{1,4}$/, 'must be like "1024x1024"')).min(1),
    z.strictObject({
      multipleOf: z.int().min(1).describe("both sides are multiples of it"),
      longestPx: z.int().min(1).describe("the most pixels of a side"),
      leastPixels: z.int().min(1).describe("the fewest pixels of a picture"),
      mostPixels: z.int().min(1).describe("the most pixels of a picture"),
      mostRatio: z.number().min(1).describe("the longer side divided by the shorter one is at most this"),
    }),
  ],
  {
    error:
      'must be a list such as ["1024x1024"], or a rule with multipleOf, longestPx, leastPixels, mostPixels and mostRatio',
  },
);

/** The fields of every provider entry. */
const anyProvider = {
  name: z.string().min(1).describe("its name in records, lists and messages"),
  rateMultiplier: z.number().min(0).default(1).describe("the factor on the price of its images"),
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
  requestsPerMinute: z
    .int()
    .min(1)
    .nullable()
    .default(null)
    .describe("the most requests in a minute; null: no limit of its own"),
  free: z.boolean().default(false).describe("its images cost nothing"),
  sizes: pixelSizes
    .nullable()
    .default(null)
    .describe(
      "the sizes in pixels that it takes, for models of which the catalogue knows none: a list, or a rule. What none of them makes is refused. null: any",
    ),
  for: z
    .array(z.enum(["batches", "realtime"]))
    .min(1)
    .default(["batches", "realtime"])
    .describe("the kinds of requests that it serves"),
};
/**
 * The address of a native upstream without a version of its API at its end, which other tools want there: `apiVersion` is
 * added to each path.
 */
const nativeUrl = httpUrl.overwrite((url) => url.replace(/\/v\d+(?:(?:alpha|beta)\d*)?\/*(?=\?|$)/, ""));
/**
 * The address of an upstream that speaks OpenAI's API, with the `/v1` that other tools add to a host without a path, and without
 * the path of images.
 */
const openaiUrl = httpUrl.overwrite((url) =>
  url
    .replace(/\/images\/(?:generations|edits)\/*(?=\?|$)/, "")
    .replace(/^(https?:\/\/[^/?#]+)\/*(?=\?|$)/i, "$1/v1"),
);
const ADDRESS = "the address of the upstream, from which paths begin";

const remote = {
  ...upstream,
  baseUrl: httpUrl.describe(ADDRESS),
  concurrency: z.int().min(1).default(4).describe("how many requests run at once"),
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
  concurrency: z.int().min(1).default(1).describe("how many images are made at once"),
  timeoutSeconds: z.number().positive().default(600).describe("the time limit of one image"),
};

const proceduralSchema = z.strictObject({
  type: z.literal("procedural").describe("drawings of the words of a prompt"),
  ...anyProvider,
  models: z.array(z.string()).default(["*"]).describe("the ids of the models that it serves; *: all"),
  concurrency: z.int().min(1).default(2).describe("how many drawings are made at once"),
});

const idempotencyKey = header
  .nullable()
  .default(null)
  .describe(
    "the header by which the upstream makes an image once, however often it is asked: then a request whose answer was lost is sent again; null: it has none. Another imgbatch is known by its API key (imgb_…), and needs no entry here",
  );

/** The vendor's own `generateContent`, or another imgbatch. */
const nativeSchema = z.strictObject({
  type: z.literal("native").describe("the vendor's generateContent, or another imgbatch"),
  ...remote,
  baseUrl: nativeUrl.describe(ADDRESS),
  idempotencyKey,
  apiVersion: z.string().min(1).default("v1beta").describe("the part of the path behind baseUrl"),
  keyHeader: header.default("x-vendorx-api-key").describe("the header that carries the key"),
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
    .default(["batches"])
    .describe("the kinds of requests that it serves"),
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
  type: z.literal("native-batch").describe("the vendor's files and batch jobs"),
  ...jobs,
  baseUrl: nativeUrl.describe(ADDRESS),
  apiVersion: z.string().min(1).default("v1beta").describe("the part of the path behind baseUrl"),
  keyHeader: header.default("x-vendorx-api-key").describe("the header that carries the key"),
});

const keyAuth = header.default("bearer").describe('"bearer", or the name of the header that carries the key');

/** OpenAI Images and the services that speak it. */
const openaiSchema = z.strictObject({
  type: z.literal("openai").describe("OpenAI Images, and services that speak it"),
  ...remote,
  baseUrl: openaiUrl.describe(ADDRESS),
  idempotencyKey,
  path: z
    .string()
    .startsWith("/")
    .default("/images/generations")
    .describe("the path of requests without input images, behind baseUrl"),
  editPath: z
    .string()
    .startsWith("/")
    .default("/images/edits")
    .describe("the path of requests with input images, behind baseUrl"),
  sizeAs: z
    .enum(["size", "width_height", "aspect_ratio"])
    .default("size")
    .describe("how the size is asked for: `size` as WxH, `width` and `height`, or `aspect_ratio`"),
  edits: z
    .enum(["multipart", "json", "input_references", "none"])
    .default("multipart")
    .describe("how input images are sent; none: it takes none"),
  responseFormat: z
    .enum(["b64_json", "base64", "url", "omit"])
    .default("b64_json")
    .describe("what is asked for as `response_format`; omit: nothing"),
  resolution: z
    .enum(["lower", "upper"])
    .nullable()
    .default(null)
    .describe("beside `aspect_ratio`, sizes other than 1K are asked for as `resolution`: 2k, or 2K"),
  takes: z
    .array(z.enum(["seed", "negative_prompt"]))
    .default([])
    .describe("the fields that it takes besides those of OpenAI"),
  auth: keyAuth,
  extra: extra.describe("merged into the body of each request"),
});

/** OpenAI's batch jobs for images. */
const openaiBatchSchema = z.strictObject({
  type: z.literal("openai-batch").describe("OpenAI's batch jobs"),
  ...jobs,
  baseUrl: openaiUrl.describe(ADDRESS),
  auth: keyAuth,
  extra: extra.describe("merged into the body of each request"),
});

/** A1111, Forge, SD.Next, sd-server: an image server on the user's own graphics card. */
const sdapiSchema = z.strictObject({
  type: z.literal("sdapi").describe("an image server on your own graphics card, such as A1111 or Forge"),
  ...onThisMachine,
  baseUrl: httpUrl.default("http://127.0.0.1:7860").describe("the address of the server"),
  userEnv: variable
    .nullable()
    .default(null)
    .describe("the environment variable that holds the user name of the server"),
  passwordEnv: variable.nullable().default(null).describe("the environment variable that holds its password"),
  extra: extra.describe('added to the request, such as {"steps": 20, "negative_prompt": "text"}'),
});

/** Any program of one's own. */
const commandSchema = z.strictObject({
  type: z.literal("command").describe("a program of your own"),
  ...onThisMachine,
  argv: z.array(z.string()).min(1).describe("the program and its arguments; no shell reads them"),
  env: z.array(variable).default([]).describe("the environment variables that the program may see"),
});

/** A placeholder in the template of a body. The value of the request replaces the whole string, as JSON. */
const PLACEHOLDER =
  /^\{(model|prompt|ratio|size|width|height|format|quality|background|seed|negative_prompt|references|reference([1-9]|1[0-6]))\}$/;
/** Fields of an answer, one in the other. Of a list on the way, each entry counts. */
const answerField = z.string().regex(/^[\w-]+(\.[\w-]+)*$/, "must be fields with dots, such as urls.get");
const answerFieldOrPath = z
  .string()
  .regex(
    /^([\w-]+(\.[\w-]+)*|\/.*\{id\}.*)$/,
    "must be the field that has the address, such as urls.get, or a path such as /tasks/{id}",
  );
const words = z.array(z.string().min(1));

function isPattern(text: string): boolean {
  try {
    return new RegExp(text) instanceof RegExp;
  } catch {
    return false;
  }
}

/** Returns the placeholders of a body. Calls `refuse` with the path of each text that looks like one and is none. */
export function placeholdersIn(
  body: unknown,
  refuse: (path: (string | number)[]) => void = () => {},
  path: (string | number)[] = [],
): string[] {
  if (typeof body === "string") {
    if (PLACEHOLDER.test(body)) return [body.slice(1, -1)];
    if (/^\{\w*\}$/.test(body)) refuse(path);
    return [];
  }
  if (typeof body !== "object" || body === null) return [];
  return Object.entries(body).flatMap(([key, each]) =>
    placeholdersIn(each, refuse, [...path, Array.isArray(body) ? Number(key) : key]),
  );
}

/** An upstream that answers with a task, which is polled until it has a picture. What is special of a vendor is data. */
const taskSchema = z.strictObject({
  type: z.literal("task").describe("an upstream that answers with a task, which is polled"),
  ...remote,
  timeoutSeconds: z
    .number()
    .positive()
    .default(600)
    .describe("the time limit of one image; a task that is not done by then has failed"),
  auth: keyAuth,
  path: z.string().startsWith("/").describe("creates a task; {model} stands for the id of the model"),
  headers: z
    .record(header, z.string())
    .default({})
    .describe("sent with each task, such as the vendor's word for: do not do failed work again"),
  body: z
    .record(z.string(), z.json())
    .superRefine((body, context) => {
      const message =
        "is no value of a request: use {model}, {prompt}, {ratio}, {size}, {width}, {height}, {format}, {quality}, {background}, {seed}, {negative_prompt}, {references} or {reference1} to {reference16}";
      const found = placeholdersIn(body, (path) => context.addIssue({ code: "custom", path, message }));
      if (!found.includes("prompt")) context.addIssue({ code: "custom", message: "must have {prompt}" });
    })
    .describe(
      'sent with each task: {"input": {"prompt": "{prompt}", "seed": "{seed}"}}. A text that is a placeholder becomes the value of the request; a field without a value is left out. {references} is the list of all reference images, {reference1} the first of them',
    ),
  words: z
    .record(
      z
        .string()
        .refine((name) => PLACEHOLDER.test(`{${name}}`), "must be a placeholder without its brackets"),
      z.record(z.string(), z.json()),
    )
    .default({})
    .describe('what the vendor calls values, by placeholder: {"format": {"jpeg": "jpg"}}'),
  referencesAs: z
    .enum(["data_url", "base64"])
    .default("data_url")
    .describe("how reference images stand in a body"),
  id: answerField.default("id").describe("the field of an answer that has the id of the task"),
  poll: answerFieldOrPath.describe(
    "where a task is polled: the field that has the address, or a path with {id}",
  ),
  cancel: answerFieldOrPath.nullable().default(null).describe("the same, where a POST ends a task"),
  origins: z
    .array(
      z
        .string()
        .regex(
          /^(https?:\/\/[a-z0-9.-]+(:\d+)?|https:\/\/([a-z0-9-]+\.)*\*\.([a-z0-9-]+\.)+[a-z]+)$/,
          "must be like https://api.host.com, or https://api.*.host.com with one * in place of a name",
        ),
    )
    .default([])
    .describe(
      "where a task may be polled with the key, besides the origin of baseUrl. With a *, an address must be public",
    ),
  states: z
    .strictObject({
      field: answerField.default("status").describe("the field of an answer that has the state"),
      done: words.min(1).describe("the states of a task that has its images"),
      failed: words.default([]).describe("the states of a task that has failed"),
      refused: words.default([]).describe("the content was refused"),
    })
    .describe("what the vendor calls the states of a task"),
  result: answerField.describe(
    "the field that has the images of a done task: addresses, data URLs or Base64",
  ),
  error: answerField.nullable().default(null).describe("the field that says why a task has failed"),
  refusal: z
    .string()
    .refine(isPattern, "must be a regular expression")
    .nullable()
    .default(null)
    .describe("a regular expression: an error with such words is a refusal of the content"),
  cost: z
    .strictObject({
      field: answerField.describe("the field of an answer that has the cost"),
      usd: z.number().positive().describe("US dollars of 1"),
    })
    .nullable()
    .default(null)
    .describe("the field that has what a task costs"),
  probe: z
    .string()
    .startsWith("/")
    .nullable()
    .default(null)
    .describe("a GET that costs nothing and needs the key"),
  pollSeconds: z
    .number()
    .positive()
    .default(1)
    .describe("the first pause between two polls; it grows fivefold"),
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
  taskSchema,
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
