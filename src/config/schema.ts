import { isIP } from "node:net";
import { z } from "zod";
import { BACKGROUNDS, RATIOS, SIZE_TIERS } from "../contract/image-formats.ts";
import { DEFAULT_LIMITS, type Limits } from "../contract/limits.ts";
import { type ProviderEntry, providerEntrySchema } from "../contract/provider-entries.ts";
import { UPSTREAM_NAMES } from "../providers/catalogue/catalogue.ts";
import { storageSchema } from "./storage-places.ts";
import { VENDOR_NAMES } from "./vendors.ts";

const factor = z.number().min(0);

const modelSchema = z.strictObject({
  id: z.string().min(1),
  family: z.string().default("native"),
  batch: z.boolean().default(true),
  realtime: z.boolean().default(true),
  ratios: z
    .union([z.enum(["common", "extended"]), z.array(z.enum(RATIOS.extended)).min(1)])
    .default("common"),
  sizes: z.array(z.enum(SIZE_TIERS)).default(["1K"]),
  prices: z.partialRecord(z.enum(SIZE_TIERS), factor).default({}),
  qualities: z.array(z.string().min(1)).min(1).optional().describe("the model's own words"),
  defaultQuality: z.string().optional().describe("sent when a request names none; `prices` are for it"),
  qualityPrices: z
    .record(z.string(), z.partialRecord(z.enum(SIZE_TIERS), factor))
    .optional()
    .describe("the prices of each quality, where they differ"),
  backgrounds: z.array(z.enum(BACKGROUNDS)).min(1).optional(),
  seed: z.boolean().optional().describe("whether it takes a seed; left out: as its provider"),
  maxReferenceImages: z.int().min(0).optional(),
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
  mapsTo: z.string().optional(),
});

const groupSchema = z.strictObject({
  name: z.string().min(1),
  platform: z.string().default("native"),
  allowBatchImages: z.boolean().default(true),
  models: z.array(z.string()).default(["*"]),
  rateMultiplier: factor.default(1),
  batchDiscount: factor.default(0.5),
  holdMultiplier: factor.default(0.6),
});

const limitsSchema = z.strictObject(
  Object.fromEntries(
    Object.entries(DEFAULT_LIMITS).map(([name, value]) => [
      name,
      (name === "outageHours" ? z.number() : z.int()).min(0).default(value),
    ]),
  ) as { [Name in keyof Limits]: z.ZodDefault<z.ZodNumber> },
);

const flash = {
  ratios: "extended",
  sizes: ["1K", "2K", "4K"],
  prices: { "1K": 0.067, "2K": 0.101, "4K": 0.151 },
};
const pro = { ratios: "common", sizes: ["1K", "2K", "4K"], prices: { "1K": 0.134, "2K": 0.134, "4K": 0.24 } };
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
  $schema: z.string().optional(),
  baseUrl: httpUrl.nullable().default(null),
  server: z
    .strictObject({
      host: z.string().default("127.0.0.1"),
      port: z.int().min(0).max(65535).default(8787),
      publicUrl: httpUrl.nullable().default(null).describe("the URL under which clients know the service"),
      corsOrigins: z
        .array(z.string().regex(/^https?:\/\/[^/*\s]+$/, "must be an origin such as https://app.example.com"))
        .default([])
        .describe("the origins of web pages that may call the APIs of images and `/v1beta` from a browser"),
      trustProxy: trustProxySchema.default(false),
    })
    .prefault({}),
  features: z
    .strictObject({
      batchImages: z.boolean().default(true),
      workers: z.boolean().default(true),
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
    .prefault({}),
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
        .default(["x-vendorx-api-key"]),
    })
    .prefault({}),
  openai: z
    .strictObject({
      models: z
        .record(z.string(), z.string())
        .default({})
        .describe(
          "model names that OpenAI's clients have built in, each with the id of a model; a * at the end stands for any text. Default: gpt-image-*, dall-e-* and chatgpt-image-latest are the first real-time model",
        ),
    })
    .prefault({}),
  storage: storageSchema.prefault({}),
  models: z.array(modelSchema).refine(uniqueBy("id"), "has two models with one id").prefault(DEFAULT_MODELS),
  groups: z
    .array(groupSchema)
    .refine(uniqueBy("name"), "has two groups with one name")
    .prefault([{ name: "default" }]),
  providers: z
    .array(providerEntrySchema)
    .refine(uniqueBy("name"), "has two providers with one name")
    .prefault([{ name: "procedural", type: "procedural" }]),
  replay: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe(
      "a directory that `imgbatch exec --replay DIR --record` has filled, seen from this file: its images answer in place of the providers, free of charge",
    ),
  limits: limitsSchema.prefault({}),
  storageUriPrefixes: z.array(z.string()).default([]),
  retention: z
    .strictObject({
      inputHours: factor.default(24),
      outputHours: factor.default(72),
      sweepMinutes: z.number().positive().default(30),
    })
    .prefault({}),
  simulate: z
    .strictObject({
      latencyMs: factor.default(0),
      fail: z.number().min(0).max(1).default(0),
      seed: z.int().default(1),
    })
    .prefault({}),
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
    return entries.some(
      (entry) => isServedBy(entry, model) && !(jobPrice === null && entry.type.endsWith("-batch")),
    );
  });
  return found?.id ?? null;
}

/** The configuration as a person writes it: a provider may be a preset with what differs. */
export const writtenConfigSchema = entriesSchema.extend({
  providers: z
    .array(
      z.union([
        z
          .looseObject({ preset: z.enum(UPSTREAM_NAMES as [string]) })
          .describe("a preset, and the fields of its type that differ"),
        ...providerEntrySchema.options,
      ]),
    )
    .optional(),
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
      const isOfJobs = entry.type === "native-batch" || entry.type === "openai-batch";
      const share = batchDiscount * rateMultiplier * entry.rateMultiplier;
      const isLess = allowBatchImages && batchDiscount < 1 && share < 1;
      if (isOfJobs || !entry.for.includes("batches") || !isLess) return [];
      const part = share === 0.5 ? "half" : `${Math.round(100 * share)} %`;
      const message = `the group ${name} charges ${part} of what ${entry.name} bills for an image of a batch`;
      const group = `"groups": [{"name": ${JSON.stringify(name)}, "batchDiscount": 1}]`;
      return [{ message, advice: `to charge all of it, give the group a batchDiscount of 1: ${group}` }];
    }),
  );
}
