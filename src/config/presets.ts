import type { z } from "zod";
import type { SizeTier } from "../contract/image-formats.ts";
import type { configSchema } from "./schema.ts";
import { VENDOR_NAMES } from "./vendors.ts";

/** An entry of the configuration as a person writes it. */
type Written<Key extends "models" | "providers"> = NonNullable<z.input<typeof configSchema>[Key]>[number];

export const UPSTREAM_NAMES = [
  "google",
  "google-batch",
  "openai",
  "openai-batch",
  "openrouter",
  "together",
  "xai",
  "localai",
  "ollama",
  "sdapi",
  "command",
] as const;
export type UpstreamName = (typeof UPSTREAM_NAMES)[number];

/** An upstream that can be chosen by its name alone. */
interface UpstreamPreset {
  /** For people, such as "the Gemini API". */
  title: string;
  /** The environment variable that holds the key; null when there is none. */
  keyVariable: string | null;
  /** A step that a person does once, besides setting the key; null when there is none. */
  preparation: string | null;
  /** The source of the prices with its date, or, where they were not read from the vendor's own list, the advice to check them. */
  priceSource: string;
  models: Written<"models">[];
  /** The share of the list price that an image of a batch costs. Left out: all of it. */
  batchDiscount?: number;
  provider: Written<"providers">;
}

function model(
  id: string,
  prices: Partial<Record<SizeTier, number>>,
  maxReferenceImages: number,
  ratios: "common" | "extended" = "common",
): Written<"models"> {
  return { id, ratios, sizes: Object.keys(prices) as SizeTier[], prices, maxReferenceImages };
}

/** Which models exist was noted on 2026-11-23. The first is the default: new ones go behind it. */
const GEMINI_MODELS: Written<"models">[] = [
  model("gemini-nano-banana-2.1", { "1K": 0.0336, "2K": 0.0504, "4K": 0.113 }, 14, "extended"),
  model("gemini-3-pro-image", { "1K": 0.134, "2K": 0.134, "4K": 0.24 }, 14),
  model("gemini-3.1-flash-lite-image", { "1K": 0.0336 }, 3),
];

/** The models that programs for the Gemini API name, also those that the vendor has ended (2026-10-29 and 2026-10-02). */
export const GOOGLE_MODELS: Written<"models">[] = [
  ...GEMINI_MODELS,
  model("gemini-3.1-flash-image", { "512": 0.045, "1K": 0.067, "2K": 0.101, "4K": 0.151 }, 14, "extended"),
  model("gemini-2.5-flash-image", { "1K": 0.039 }, 3),
];

/** The image models of the OpenAI API that have batch jobs and no end date. */
const OPENAI_MODELS: Written<"models">[] = [
  model("gpt-image-2", { "1K": 0.053 }, 14),
  model("gpt-image-2.5-sunburst", { "1K": 0.013 }, 14),
  model("gpt-image-2.5-flare", { "1K": 0.013 }, 14),
];

/** The sizes that all GPT Image models take. */
const GPT_SIZES = ["1024x1024", "1536x1024", "1024x1536"];

const GOOGLE_PRICES =
  "Check this price at ai.google.dev/gemini-api/docs/pricing: noted on 2026-10-07 for the standard tier; input and thinking tokens are extra";
const OPENAI_PRICES =
  "Check this price at platform.openai.com: noted in 2026-09 for quality medium at 1024x1024; input tokens are extra";

/** Models, addresses and prices in US dollars. They change. */
export const PRESETS: Readonly<Record<UpstreamName, UpstreamPreset>> = {
  google: {
    title: "the Gemini API",
    keyVariable: "GEMINI_API_KEY",
    preparation: null,
    priceSource: GOOGLE_PRICES,
    models: GEMINI_MODELS,
    provider: {
      name: "google",
      type: "native",
      baseUrl: "https://generativelanguage.googleapis.com",
      keyHeader: "x-goog-api-key",
      apiKeyEnv: "GEMINI_API_KEY",
    },
  },
  "google-batch": {
    title: "the batch jobs of the Gemini API: at half the price, within a day",
    keyVariable: "GEMINI_API_KEY",
    preparation: null,
    priceSource: `${GOOGLE_PRICES}; a batch job costs half of it`,
    models: GEMINI_MODELS,
    batchDiscount: 0.5,
    provider: {
      name: "google-batch",
      type: "native-batch",
      baseUrl: "https://generativelanguage.googleapis.com",
      keyHeader: "x-goog-api-key",
      apiKeyEnv: "GEMINI_API_KEY",
    },
  },
  openai: {
    title: "the OpenAI API",
    keyVariable: "OPENAI_API_KEY",
    preparation: null,
    priceSource: OPENAI_PRICES,
    models: OPENAI_MODELS,
    provider: {
      name: "openai",
      type: "openai",
      baseUrl: "https://api.openai.com/v1",
      responseFormat: "omit",
      sizes: GPT_SIZES,
      // The price depends on the quality.
      extra: { quality: "medium" },
      apiKeyEnv: "OPENAI_API_KEY",
    },
  },
  "openai-batch": {
    title: "the batch jobs of the OpenAI API: at half the price, within a day",
    keyVariable: "OPENAI_API_KEY",
    preparation: null,
    priceSource: `${OPENAI_PRICES}; a batch job costs half of it`,
    models: OPENAI_MODELS,
    batchDiscount: 0.5,
    provider: {
      name: "openai-batch",
      type: "openai-batch",
      baseUrl: "https://api.openai.com/v1",
      sizes: GPT_SIZES,
      extra: { quality: "medium" },
      apiKeyEnv: "OPENAI_API_KEY",
    },
  },
  openrouter: {
    title: "OpenRouter",
    keyVariable: "OPENROUTER_API_KEY",
    preparation: null,
    priceSource:
      "Check this price at openrouter.ai/models: noted in 2026-11 for an image of about a megapixel; input and thinking tokens are extra",
    models: [
      model("gemini-nano-banana-2.1", { "1K": 0.0336 }, 14, "extended"),
      model("seedream-4.5", { "1K": 0.04 }, 10),
      model("flux.2-pro", { "1K": 0.03 }, 8),
    ],
    provider: {
      name: "openrouter",
      type: "openai",
      baseUrl: "https://openrouter.ai/api/v1",
      path: "/images",
      editPath: "/images",
      sizeAs: "aspect_ratio",
      edits: "input_references",
      responseFormat: "omit",
      models: {
        "gemini-nano-banana-2.1": "google/gemini-nano-banana-2.1",
        "seedream-4.5": "bytedance-seed/seedream-4.5",
        "flux.2-pro": "black-forest-labs/flux.2-pro",
      },
      apiKeyEnv: "OPENROUTER_API_KEY",
    },
  },
  together: {
    title: "Together AI",
    keyVariable: "TOGETHER_API_KEY",
    preparation: null,
    priceSource: "Check this price at together.ai/pricing: noted in 2026-11 for 1024x1024 (1.05 megapixels)",
    models: [model("flux.1-schnell", { "1K": 0.0028 }, 0), model("flux.2-pro", { "1K": 0.03 }, 0)],
    provider: {
      name: "together",
      type: "openai",
      baseUrl: "https://api.together.xyz/v1",
      sizeAs: "width_height",
      edits: "none",
      responseFormat: "base64",
      models: {
        "flux.1-schnell": "black-forest-labs/FLUX.1-schnell",
        "flux.2-pro": "black-forest-labs/FLUX.2-pro",
      },
      apiKeyEnv: "TOGETHER_API_KEY",
    },
  },
  xai: {
    title: "the xAI API",
    keyVariable: "XAI_API_KEY",
    preparation: null,
    priceSource:
      "Check this price at docs.x.ai/docs/models: noted in 2026-11 for resolution 1k and the usual quality",
    models: [
      model("grok-imagine-image", { "1K": 0.02 }, 3),
      model("grok-imagine-image-2.0", { "1K": 0.06 }, 3),
    ],
    provider: {
      name: "xai",
      type: "openai",
      baseUrl: "https://api.x.ai/v1",
      sizeAs: "aspect_ratio",
      edits: "json",
      extra: { resolution: "1k" },
      apiKeyEnv: "XAI_API_KEY",
    },
  },
  localai: {
    title: "LocalAI on this machine",
    keyVariable: null,
    preparation: "start LocalAI on port 8080 with an image model named stablediffusion",
    priceSource: "Your own machine: images cost nothing",
    models: [model("stablediffusion", { "1K": 0 }, 0)],
    provider: {
      name: "localai",
      type: "openai",
      baseUrl: "http://127.0.0.1:8080/v1",
      edits: "none",
      concurrency: 1,
      timeoutSeconds: 600,
      free: true,
    },
  },
  ollama: {
    title: "Ollama on this machine",
    keyVariable: null,
    preparation: "run `ollama serve` and, once, `ollama pull x/z-image-turbo`",
    priceSource: "Your own machine: images cost nothing",
    models: [model("z-image-turbo", { "1K": 0 }, 0)],
    provider: {
      name: "ollama",
      type: "openai",
      baseUrl: "http://127.0.0.1:11434/v1",
      edits: "none",
      models: { "z-image-turbo": "x/z-image-turbo" },
      concurrency: 1,
      timeoutSeconds: 600,
      free: true,
    },
  },
  sdapi: {
    title: "A1111, Forge, SD.Next or sd-server on this machine",
    keyVariable: null,
    preparation: "start your image server with its API on port 7860 (A1111 and Forge: --api)",
    priceSource: "Your own graphics card: images cost nothing",
    models: [model("local", { "1K": 0 }, 1)],
    provider: { name: "sdapi", type: "sdapi", baseUrl: "http://127.0.0.1:7860", free: true },
  },
  command: {
    title: "a program of your own",
    keyVariable: null,
    preparation: "write ./make-image (or name another program in argv), then: imgbatch doctor --agree",
    priceSource: "Put here the price of one image of your program; add free: true if it costs nothing",
    models: [model("my-model", { "1K": 0 }, 14)],
    provider: { name: "command", type: "command", argv: ["./make-image"] },
  },
};

/** Returns the parts of the configuration that make a preset's upstream the only one. */
export function upstreamConfig(name: UpstreamName) {
  const { models, provider, batchDiscount = 1 } = PRESETS[name];
  return {
    models,
    groups: [{ name: "default", batchDiscount, holdMultiplier: batchDiscount }],
    providers: [provider],
  };
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Returns a configuration, not checked yet, with the settings of its `vendor.preset`. A key that it has already wins.
 * Any other value is returned unchanged.
 */
export function withVendorPreset(value: unknown): unknown {
  if (!isObject(value) || !isObject(value.vendor)) return value;
  const { preset } = value.vendor;
  if (!VENDOR_NAMES.some((name) => name === preset)) return value;
  const filled = (given: unknown, settings: object) =>
    given === undefined ? settings : isObject(given) ? { ...settings, ...given } : given;
  return {
    models: GOOGLE_MODELS,
    ...value,
    features: filled(value.features, { strictImageConfig: false }),
    vendor: filled(value.vendor, { keyHeaders: ["x-goog-api-key"] }),
  };
}
