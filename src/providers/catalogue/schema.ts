import { z } from "zod";
import { IMAGE_EXTENSIONS, MOST_SEED, RATIOS, SIZE_TIERS } from "../../contract/image-formats.ts";
import { pixelSizes, providerEntrySchema } from "../../contract/provider-entries.ts";

const id = z.string().regex(/^[\w.-]+$/, "must be letters, digits, dots, dashes and underscores");
const day = z.string().regex(/^\d{4}-\d{2}-\d{2}$/, "must be a day such as 2026-10-29");
const formats = Object.values(IMAGE_EXTENSIONS).map((name) => (name === "jpg" ? "jpeg" : name));
const bySize = z.partialRecord(z.enum(SIZE_TIERS), z.number().min(0));

const modelSchema = z
  .strictObject({
    id: id.describe("our id of the model"),
    upstreamId: z.string().min(1).optional().describe("the vendor's id, where it is another one"),
    title: z.string().min(1),
    ratios: z.array(z.enum(RATIOS.extended)).min(1).optional(),
    sizes: z.array(z.enum(SIZE_TIERS)).min(1).describe("a model of one size is asked for no size"),
    pixels: pixelSizes
      .optional()
      .describe(
        "the pixels that it is asked for; left out: those of its entry, else a size and a ratio decide",
      ),
    qualities: z.array(z.string().min(1)).min(1).optional().describe("the model's own words"),
    defaultQuality: z.string().optional().describe("sent when a request names none"),
    backgrounds: z
      .array(z.enum(["transparent", "opaque", "auto"]))
      .min(1)
      .optional(),
    formats: z.array(z.enum(formats)).min(1).optional().describe("the types that a request may ask for"),
    promptChars: z.int().min(8000).optional().describe("the longest prompt that it takes, in characters"),
    maxReferenceImages: z.int().min(0).optional(),
    mask: z.boolean().optional(),
    seed: z.boolean().optional().describe("whether it takes a seed; left out, none is sent"),
    maxSeed: z.int().min(1).max(MOST_SEED).optional().describe(`the largest seed; left out: ${MOST_SEED}`),
    prices: z
      .union([bySize, z.record(z.string(), bySize)])
      .describe("US dollars an image: by size, or by quality and size. Empty: not known"),
    jobPrice: z
      .number()
      .positive()
      .max(1)
      .nullable()
      .optional()
      .describe("the share of the price that an image of a batch job costs; null: no jobs"),
    asOf: z
      .string()
      .regex(/^\d{4}-\d{2}(-\d{2})?$/, "must be a day or a month such as 2026-10")
      .optional()
      .describe("when the prices were read"),
    source: z.string().min(1).optional().describe("where the prices were read"),
    retires: day.optional().describe("the day on which the vendor ends the model"),
    successor: id.optional().describe("the model that the vendor names in its place"),
  })
  .superRefine((model, context) => {
    const { sizes, qualities, defaultQuality, prices, asOf, source } = model;
    const refuse = (field: keyof typeof model, message: string) =>
      context.addIssue({ code: "custom", path: [field], message });
    if ((defaultQuality === undefined) !== (qualities === undefined))
      refuse("defaultQuality", "goes with qualities");
    else if (qualities && !qualities.includes(defaultQuality ?? ""))
      refuse("defaultQuality", "is not one of qualities");
    const tables = qualities ? Object.entries(prices) : [["", prices] as const];
    for (const [word, table] of tables) {
      if (qualities && !qualities.includes(word)) refuse("prices", `${word} is not one of qualities`);
      const known = bySize.safeParse(table);
      if (!known.success || Object.keys(known.data).some((size) => !(sizes as string[]).includes(size)))
        refuse("prices", `must have prices of ${sizes.join(", ")}`);
      else if (Object.values(known.data).some((usd) => usd > 0) && !(asOf && source))
        refuse("asOf", "prices need their day and their source");
    }
  });

const listSchema = z
  .strictObject({
    path: z.string().startsWith("/").describe("below the base URL"),
    entries: z.string().describe("the field of the answer that has the models"),
    id: z.string().describe("the field of an entry that has the id"),
    prefix: z.string().optional().describe("is before each id"),
    aliases: z.string().optional().describe("the field with other ids of the same model"),
    snapshot: z
      .string()
      .optional()
      .describe("a regular expression: what a dated id has behind the plain one"),
    retires: z.string().optional().describe("the field with the day of the end"),
    methods: z.string().optional().describe("the field with what the model can do; presets name their need"),
    next: z
      .strictObject({ field: z.string(), parameter: z.string() })
      .optional()
      .describe("the mark of the next page in an answer, and the parameter that takes it"),
    filter: z
      .strictObject({ fields: z.array(z.string()).min(1), pattern: z.string() })
      .optional()
      .describe(
        "models that make images, by a regular expression; ours always count. Left out: all make images",
      ),
  })
  .describe("how the vendor's list of models is read");

const presetSchema = z.strictObject({
  title: z.string().min(1).describe("for people, such as: the Gemini API"),
  preparation: z.string().optional().describe("a step that a person does once, besides setting the key"),
  needs: z.string().optional().describe("what a model of the vendor's list must be able to do"),
  provider: providerEntrySchema.describe("the entry of `providers` that the preset stands for"),
});

/** A file of the catalogue: a vendor with its presets, its list and its models. The first model is the default. */
export const vendorSchema = z
  .strictObject({
    vendor: z.string().min(1),
    presets: z.record(id, presetSchema),
    list: listSchema.optional(),
    models: z.array(modelSchema).min(1),
    gone: z
      .record(id, pixelSizes)
      .optional()
      .describe("the pixels of models that the vendor has ended, whose names clients still send"),
  })
  .superRefine(({ presets, models }, context) => {
    const ids = models.map((model) => model.id);
    for (const [at, model] of models.entries()) {
      if (ids.indexOf(model.id) !== at)
        context.addIssue({ code: "custom", path: ["models", at], message: "is there twice" });
      if (model.successor !== undefined && !ids.includes(model.successor))
        context.addIssue({ code: "custom", path: ["models", at, "successor"], message: "is no model here" });
    }
    for (const [name, { provider }] of Object.entries(presets))
      if (provider.name !== name)
        context.addIssue({
          code: "custom",
          path: ["presets", name, "provider", "name"],
          message: "is another",
        });
  });

/** A vendor as its file has it. */
export type Vendor = z.input<typeof vendorSchema>;
export type CatalogueModel = Vendor["models"][number];
