import type { z } from "zod";
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
export interface UpstreamPreset {
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

/** The image models of the Gemini API. */
export const GOOGLE_MODELS: Written<"models">[] = [
  {
    id: "gemini-3.1-flash-image",
    ratios: "extended",
    sizes: ["512", "1K", "2K", "4K"],
    prices: { "512": 0.045, "1K": 0.067, "2K": 0.101, "4K": 0.151 },
    maxReferenceImages: 14,
  },
  {
    id: "gemini-3-pro-image",
    sizes: ["1K", "2K", "4K"],
    prices: { "1K": 0.134, "2K": 0.134, "4K": 0.24 },
    maxReferenceImages: 14,
  },
  { id: "gemini-3.1-flash-lite-image", sizes: ["1K"], prices: { "1K": 0.0336 }, maxReferenceImages: 3 },
  { id: "gemini-2.5-flash-image", sizes: ["1K"], prices: { "1K": 0.039 }, maxReferenceImages: 3 },
];

/** The image models of the OpenAI API. */
const OPENAI_MODELS: Written<"models">[] = [
  { id: "gpt-image-2", sizes: ["1K"], prices: { "1K": 0.053 }, maxReferenceImages: 14 },
  { id: "gpt-image-1.5", sizes: ["1K"], prices: { "1K": 0.034 }, maxReferenceImages: 14 },
  { id: "gpt-image-1-mini", sizes: ["1K"], prices: { "1K": 0.011 }, maxReferenceImages: 14 },
];

/** The sizes that all GPT Image models take. */
const GPT_SIZES = ["1024x1024", "1536x1024", "1024x1536"];

const own = (id: string, maxReferenceImages: number): Written<"models"> => ({
  id,
  sizes: ["1K"],
  prices: { "1K": 0 },
  maxReferenceImages,
});

const GOOGLE_PRICES = "Source: ai.google.dev/gemini-api/docs/pricing, 2026-09-05, standard tier";
const OPENAI_PRICES =
  "Check this price at platform.openai.com: noted on 2026-05-06 for quality medium at 1024x1024; input tokens are extra";

/** Models, addresses and prices in US dollars. They change. */
export const PRESETS: Readonly<Record<UpstreamName, UpstreamPreset>> = {
  google: {
    title: "the Gemini API",
    keyVariable: "GEMINI_API_KEY",
    preparation: null,
    priceSource: GOOGLE_PRICES,
    models: GOOGLE_MODELS,
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
    models: GOOGLE_MODELS,
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
      "Check this price at openrouter.ai/models: noted in 2026-11 for an image of about a megapixel; input tokens are extra",
    models: [
      {
        id: "gemini-3.1-flash-image",
        ratios: "extended",
        sizes: ["1K"],
        prices: { "1K": 0.067 },
        maxReferenceImages: 14,
      },
      { id: "seedream-4.5", sizes: ["1K"], prices: { "1K": 0.04 }, maxReferenceImages: 10 },
      { id: "flux.2-pro", sizes: ["1K"], prices: { "1K": 0.03 }, maxReferenceImages: 8 },
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
        "gemini-3.1-flash-image": "google/gemini-3.1-flash-image",
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
    models: [
      { id: "flux.1-schnell", sizes: ["1K"], prices: { "1K": 0.0028 }, maxReferenceImages: 0 },
      { id: "flux.2-pro", sizes: ["1K"], prices: { "1K": 0.03 }, maxReferenceImages: 0 },
    ],
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
    priceSource: "Check this price at docs.x.ai/docs/models: noted in 2026-11 for resolution 1k",
    models: [
      { id: "grok-imagine-image", sizes: ["1K"], prices: { "1K": 0.02 }, maxReferenceImages: 3 },
      { id: "grok-imagine-image-quality", sizes: ["1K"], prices: { "1K": 0.05 }, maxReferenceImages: 2 },
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
    models: [own("stablediffusion", 0)],
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
    models: [own("z-image-turbo", 0)],
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
    models: [own("local", 1)],
    provider: { name: "sdapi", type: "sdapi", baseUrl: "http://127.0.0.1:7860", free: true },
  },
  command: {
    title: "a program of your own",
    keyVariable: null,
    preparation: "write ./make-image (or name another program in argv)",
    priceSource: "Put here the price of one image of your program; add free: true if it costs nothing",
    models: [own("my-model", 14)],
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
