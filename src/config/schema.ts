import { isIP } from "node:net";
import { z } from "zod";
import { BACKGROUNDS, MOST_SEED, RATIOS, SIZE_TIERS } from "../contract/image-formats.ts";
import { DEFAULT_LIMITS, type Limits, UNKNOWN_OUTCOMES } from "../contract/limits.ts";
import { type ProviderEntry, providerEntrySchema } from "../contract/provider-entries.ts";
import { isJobType, UPSTREAM_NAMES } from "../providers/catalogue/catalogue.ts";
import { VENDOR_NAMES } from "./paths.ts";
import { storageSchema } from "./storage-places.ts";

const factor = z.number().min(0);

const modelSchema = z.strictObject({
  id: z.string().min(1).describe("the name by which requests ask for the model"),
  family: z.string().default("native").describe("a model of another family than native is never in batches"),
  batch: z.boolean().default(true).describe("whether batches may ask for it"),
  realtime: z.boolean().default(true).describe("whether real-time requests may ask for it"),
  ratios: z
    .union([z.enum(["common", "extended"]), z.array(z.enum(RATIOS.extended)).min(1)])
    .default("common")
    .describe("the aspect ratios that it makes: a list, the ten common ones, or also 1:4, 4:1, 1:8 and 8:1"),
  sizes: z.array(z.enum(SIZE_TIERS)).default(["1K"]).describe("the sizes that it makes"),
  prices: z
    .partialRecord(z.enum(SIZE_TIERS), factor)
    .default({})
    .describe("US dollars of an image, by size; a size without a price is not offered"),
  qualities: z.array(z.string().min(1)).min(1).optional().describe("the model's own words"),
  defaultQuality: z.string().optional().describe("sent when a request names none; `prices` are for it"),
  qualityPrices: z
    .record(z.string(), z.partialRecord(z.enum(SIZE_TIERS), factor))
    .optional()
    .describe("the prices of each quality, where they differ"),
  backgrounds: z
    .array(z.enum(BACKGROUNDS))
    .min(1)
    .optional()
    .describe("the backgrounds that a request may ask for"),
  seed: z.boolean().optional().describe("whether it takes a seed; left out: as its provider"),
  maxSeed: z
    .int()
    .min(1)
    .max(MOST_SEED)
    .optional()
    .describe(`the largest seed that it takes; left out: ${MOST_SEED}`),
  maxReferenceImages: z.int().min(0).optional().describe("the most reference images of an item of a batch"),
  jobPrice: factor
    .max(1)
    .nullable()
    .optional()
    .describe(
      "the share of its price that an image of an upstream's batch job costs, in place of batchDiscount; null: no jobs",
    ),
  asOf: z
    .string()
    .regex(/^\d{4}-\d{2}(-\d{2})?$/, "must be a day or a month such as 2026-10")
    .optional()
    .describe("when its prices were read"),
  mapsTo: z.string().optional().describe("the id of the model that is executed in its place"),
});

const groupSchema = z.strictObject({
  name: z.string().min(1).describe("the name that `imgbatch admin keys create --group` takes"),
  platform: z.string().default("native").describe("a group of another platform than native has no batches"),
  allowBatchImages: z.boolean().default(true).describe("false: its keys make no batches"),
  models: z.array(z.string()).default(["*"]).describe("the ids of the models that its keys may use; *: all"),
  rateMultiplier: factor.default(1).describe("the factor on all prices of its keys"),
  batchDiscount: factor
    .default(0.5)
    .describe(
      "the share of the price that an image of a batch costs; with presets the default is what the upstream charges",
    ),
  holdMultiplier: factor
    .default(0.6)
    .describe("the share of the price that is held for an image of a batch; at least batchDiscount"),
});

const LIMIT_WORDS: Record<keyof Limits, string> = {
  itemsPerBatch: "the most items of a batch",
  outputImagesPerBatch: "the most images of a batch",
  linesPerJob: "the most lines of a batch job of a vendor's API",
  outputCountPerItem: "the most images of an item",
  promptChars: "the most characters of a prompt",
  referenceImageBytes: "the most bytes of a reference image",
  referenceImagesPerBatch: "the most reference images of a batch",
  referenceBytesPerBatch: "the most bytes of all reference images of a batch",
  createBodyBytes: "the most bytes of a request that makes a batch",
  realtimeBodyBytes: "the most bytes of a real-time request",
  zipItems: "the most items of a ZIP",
  zipBytes: "the most bytes of a ZIP",
  downloadsPerKey: "the most downloads of a key at once",
  requestsPerMinute: "the most real-time requests of a key in a minute; 0: no limit",
  concurrentRequests: "the most real-time requests of a key at once; 0: no limit",
  failedAuthPerMinute: "the most requests of an address with a wrong key in a minute; 0: no limit",
  realtimeTimeoutSeconds: "the time limit of a real-time request, in seconds",
  outageHours: "how long an item waits for an upstream that cannot be used, in hours",
  uploadBytes: "the most bytes of an uploaded file",
  uploadBytesPerKey: "the most bytes of all uploaded files of a key",
};

const numericLimits = Object.fromEntries(
  Object.entries(DEFAULT_LIMITS).map(([name, value]) => [
    name,
    (name === "outageHours" ? z.number() : z.int())
      .min(0)
      .default(value)
      .describe(LIMIT_WORDS[name as keyof Limits]),
  ]),
) as { [Name in keyof Limits]: z.ZodDefault<z.ZodNumber> };

const limitsSchema = z.strictObject({
  ...numericLimits,
  budget: z
    .strictObject({
      usd: z.number().min(0).describe("US dollars"),
      per: z.enum(["day", "month"]).describe("of UTC"),
    })
    .nullable()
    .default(null)
    .describe(
      "how much real money each account may hold and spend in a day or a month of UTC; null: no limit",
    ),
  unknownOutcome: z
    .enum(UNKNOWN_OUTCOMES)
    .default("stop")
    .describe(
      "when the answer of a paid request was lost: stop asks nothing again, once sends one more request and marks the image",
    ),
});

const flash = {
  ratios: "extended",
  sizes: ["1K", "2K", "4K"],
  prices: { "1K": 0.067, "2K": 0.101, "4K": 0.151 },
};
const pro = { ratios: "common", sizes: ["1K", "2K", "4K"], prices: { "1K": 0.134, "2K": 0.134, "4K": 0.24 } };
/** The providers of a configuration that names none: drawings. */
export const DEFAULT_PROVIDERS: { name: string; type: "procedural" }[] = [
  { name: "procedural", type: "procedural" },
];
/** The models of a configuration that names none, and no preset. */
export const DEFAULT_MODELS = [
  { id: "vendorx-3.1-flash-image", ...flash },
  { id: "vendorx-3.1-flash-image-preview", ...flash },
  { id: "vendorx-3-pro-image", ...pro },
  { id: "vendorx-3-pro-image-preview", ...pro },
  { id: "vendorx-3.1-flash-lite-image", ratios: "extended", sizes: ["1K"], prices: { "1K": 0.0336 } },
] as z.input<typeof modelSchema>[];

const httpUrl = z.url({ protocol: /^https?$/, error: "must be like https://host or https://host/path" });

/** Names for groups of subnets, as in Express' `trust proxy`. */
const SUBNETS = ["loopback", "linklocal", "uniquelocal"];

function isSubnet(text: string): boolean {
  const [, address = "", bits] = /^([^/]+)(?:\/([1-9]\d*))?$/.exec(text) ?? [];
  const family = isIP(address);
  return SUBNETS.includes(text) || (family > 0 && Number(bits ?? 0) <= (family === 6 ? 128 : 32));
}

const trustProxySchema = z
  .union(
    [
      z.boolean(),
      z.int().min(1),
      z.array(
        z
          .string()
          .refine(isSubnet, `must be an address, a subnet such as "10.0.0.0/8", or ${SUBNETS.join(", ")}`),
      ),
    ],
    {
      error:
        "must be true, false, the number of proxies (1 or more), or a list of their addresses and subnets",
    },
  )
  .describe("the proxies whose X-Forwarded-For is believed; false: none");

const uniqueBy = (field: "id" | "name") => (entries: readonly object[]) =>
  new Set(entries.map((entry) => (entry as Record<string, unknown>)[field])).size === entries.length;

const entriesSchema = z.strictObject({
  $schema: z.string().optional().describe("for editors: the schema of this file"),
  baseUrl: httpUrl
    .nullable()
    .default(null)
    .describe("for commands: the address of the service to talk to, without /v1; null: the embedded service"),
  server: z
    .strictObject({
      host: z.string().default("127.0.0.1").describe("the address that `serve` listens on"),
      port: z
        .int()
        .min(0)
        .max(65535)
        .default(8787)
        .describe("the port that `serve` listens on; 0: a free one"),
      publicUrl: httpUrl.nullable().default(null).describe("the URL under which clients know the service"),
      corsOrigins: z
        .array(z.string().regex(/^https?:\/\/[^/*\s]+$/, "must be an origin such as https://app.example.com"))
        .default([])
        .describe("the origins of web pages that may call the APIs of images and `/v1beta` from a browser"),
      trustProxy: trustProxySchema.default(false),
    })
    .prefault({})
    .describe("how `imgbatch serve` is reached"),
  features: z
    .strictObject({
      batchImages: z.boolean().default(true).describe("false: no new batches are taken"),
      workers: z.boolean().default(true).describe("false: no images of batches are made"),
      acceptWithoutWorkers: z
        .boolean()
        .default(false)
        .describe("true: new batches are taken while no workers run, and wait for them"),
      console: z.boolean().default(true).describe("the web console, at the address of the service"),
      strictImageConfig: z
        .boolean()
        .default(true)
        .describe(
          "false: a real-time request needs no generationConfig, responseModalities or imageConfig, and the declared type of an input image is ignored",
        ),
    })
    .prefault({})
    .describe("parts of the service that can be switched off"),
  vendor: z
    .strictObject({
      preset: z
        .enum(VENDOR_NAMES)
        .nullable()
        .default(null)
        .describe(
          "sets keyHeaders, models and features.strictImageConfig, as far as they are left out, so that the vendor's own client libraries work",
        ),
      keyHeaders: z
        .array(z.string().regex(/^[A-Za-z0-9-]+$/, "must be the name of a header"))
        .default(["x-vendorx-api-key"])
        .describe("the headers in which the native API takes a key, besides Authorization"),
    })
    .prefault({})
    .describe("makes the native API that of a vendor"),
  openai: z
    .strictObject({
      models: z
        .record(z.string(), z.string())
        .default({})
        .describe(
          "model names that OpenAI's clients have built in, each with the id of a model; a * at the end stands for any text. Default: gpt-image-*, dall-e-* and chatgpt-image-latest are the first real-time model",
        ),
    })
    .prefault({})
    .describe("OpenAI's surface"),
  storage: storageSchema.prefault({}).describe("where the data are kept"),
  models: z
    .array(modelSchema)
    .refine(uniqueBy("id"), "has two models with one id")
    .prefault(DEFAULT_MODELS)
    .describe("the models that are offered; with presets the default is theirs"),
  groups: z
    .array(groupSchema)
    .refine(uniqueBy("name"), "has two groups with one name")
    .prefault([{ name: "default" }])
    .describe(
      "the groups of keys: what they may use, and what they pay; the first one is that of the local key",
    ),
  providers: z
    .array(providerEntrySchema)
    .refine(uniqueBy("name"), "has two providers with one name")
    .prefault(DEFAULT_PROVIDERS)
    .describe("where images come from: the first provider that serves a model and can be used makes it"),
  replay: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe(
      "a directory that `imgbatch exec --replay DIR --record` has filled, seen from this file: its images answer in place of the providers, free of charge",
    ),
  limits: limitsSchema.prefault({}).describe("what a request, a batch or a key may take"),
  retention: z
    .strictObject({
      inputHours: factor
        .default(24)
        .describe("hours until the reference images of an ended batch are deleted; 0: never"),
      outputHours: factor
        .optional()
        .describe(
          "hours until the images of an ended batch are deleted; 0: never; default: 72, and 720 where no `serve` runs",
        ),
      sweepMinutes: z
        .number()
        .positive()
        .default(30)
        .describe("minutes between two sweeps, which delete what is due"),
    })
    .prefault({})
    .describe("how long images are kept"),
  simulate: z
    .strictObject({
      latencyMs: factor.default(0).describe("how long each drawing takes, in ms"),
      fail: z.number().min(0).max(1).default(0).describe("the share of drawings that fail, from 0 to 1"),
      seed: z.int().default(1).describe("decides which drawings fail"),
    })
    .prefault({})
    .describe("trouble for tests: it concerns drawings alone"),
});

/** `imgbatch.config.json`, with every default. */
export const configSchema = entriesSchema.superRefine(({ openai, models, providers }, context) => {
  refuseZeroPrices(models, providers, context);
  for (const [name, id] of Object.entries(openai.models)) {
    const refuse = (message: string) =>
      context.addIssue({ code: "custom", path: ["openai", "models", name], message });
    if (!/^[^*]+\*?$/.test(name)) refuse("must be a name, with a * at its end or without");
    else if (!models.some((model) => model.id === id)) refuse(`there is no model ${id}`);
  }
});

/** An entry as it is written. */
type WrittenEntry = z.infer<typeof providerEntrySchema>;

/** A price of nothing would spare the consent to what the upstream charges: only `free` of its provider says so. */
function refuseZeroPrices(
  models: readonly ModelOfConfig[],
  providers: readonly WrittenEntry[],
  context: z.RefinementCtx,
): void {
  const paid = providers.filter((entry) => entry.type !== "procedural" && !entry.free);
  for (const [at, { id, mapsTo = id, prices, qualityPrices = {} }] of models.entries()) {
    const tables = [
      { path: ["prices"], table: prices },
      ...Object.entries(qualityPrices).map(([word, table]) => ({ path: ["qualityPrices", word], table })),
    ];
    const zero = tables.flatMap(({ path, table }) =>
      Object.entries(table).flatMap(([size, usd]) => (usd === 0 ? [[...path, size]] : [])),
    )[0];
    if (zero === undefined) continue;
    const entry = paid.find((each) => isServedBy(each, { id, mapsTo }));
    if (entry === undefined) continue;
    const message = `is 0, and ${entry.name} is not free: write what an image costs, or "free": true in that provider`;
    context.addIssue({ code: "custom", path: ["models", at, ...zero], message });
  }
}

type ModelOfConfig = z.infer<typeof modelSchema>;

function isServedBy(
  { models }: Pick<WrittenEntry, "models">,
  { id, mapsTo = id }: Pick<ModelOfConfig, "id" | "mapsTo">,
): boolean {
  return Array.isArray(models)
    ? ["*", id, mapsTo].some((name) => models.includes(name))
    : Object.hasOwn(models, id);
}

/** Returns the first model that the service's own key has in its list of batch models, while all providers can be used; null: none. */
export function firstBatchModel({ models, groups: [group], providers }: Config): string | null {
  const entries = providers.map((entry) => (entry.type === "replay" ? entry.of : entry));
  const found = models.find((model) => {
    const { id, family, batch, prices, qualityPrices, defaultQuality = "", jobPrice } = model;
    const isOfGroup = group === undefined || ["*", id].some((name) => group.models.includes(name));
    const price = (qualityPrices?.[defaultQuality] ?? prices)["1K"];
    if (family !== "native" || !batch || !isOfGroup || price === undefined) return false;
    return entries.some((entry) => isServedBy(entry, model) && !(jobPrice === null && isJobType(entry.type)));
  });
  return found?.id ?? null;
}

/** The configuration as a person writes it: a provider may be a preset with what differs. */
export const writtenConfigSchema = entriesSchema.extend({
  providers: z
    .array(
      z.union([
        z
          .looseObject({
            preset: z
              .enum(UPSTREAM_NAMES as [string])
              .describe("the name of an upstream, as in `--upstream`, whose settings the provider has"),
          })
          .describe("a preset, and the fields of its type that differ"),
        ...providerEntrySchema.options,
      ]),
    )
    .optional()
    .describe("where images come from: the first provider that serves a model and can be used makes it"),
});

/** The whole configuration, with every default filled in. Frozen. */
export type Config = Readonly<
  Omit<z.infer<typeof configSchema>, "providers"> & { providers: ProviderEntry[] }
>;

/**
 * Returns for which upstreams a group charges less for an image of a batch than they bill, because of its `batchDiscount`, in
 * words for the operator. Jobs are left out: vendors have a discount for them.
 */
export function undercharging({ groups, providers }: Config): { message: string; advice: string }[] {
  return groups.flatMap(({ name, batchDiscount, rateMultiplier, allowBatchImages }) =>
    providers.flatMap((entry) => {
      if (entry.type === "procedural" || entry.type === "replay" || entry.free) return [];
      const share = batchDiscount * rateMultiplier * entry.rateMultiplier;
      const isLess = allowBatchImages && batchDiscount < 1 && share < 1;
      if (isJobType(entry.type) || !entry.for.includes("batches") || !isLess) return [];
      const part = share === 0.5 ? "half" : `${Math.round(100 * share)} %`;
      const message = `the group ${name} charges ${part} of what ${entry.name} bills for an image of a batch`;
      const group = `"groups": [{"name": ${JSON.stringify(name)}, "batchDiscount": 1}]`;
      return [{ message, advice: `to charge all of it, give the group a batchDiscount of 1: ${group}` }];
    }),
  );
}
