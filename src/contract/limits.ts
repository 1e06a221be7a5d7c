import type { z } from "zod";
import { MOST_JSON_LEVELS } from "../kernel/json.ts";
import { hasUnstorableText, isLongerThan } from "../kernel/text.ts";

/** The limits of a service. The configuration may set each; else its default holds. */
export interface Limits {
  itemsPerBatch: number;
  outputImagesPerBatch: number;
  /** Limits of a batch job of a vendor's API. */
  linesPerJob: number;
  outputCountPerItem: number;
  promptChars: number;
  referenceImageBytes: number;
  referenceImagesPerBatch: number;
  referenceBytesPerBatch: number;
  createBodyBytes: number;
  realtimeBodyBytes: number;
  zipItems: number;
  zipBytes: number;
  downloadsPerKey: number;
  requestsPerMinute: number;
  concurrentRequests: number;
  failedAuthPerMinute: number;
  realtimeTimeoutSeconds: number;
  /** How long an item waits for an upstream that cannot be used. May be a fraction. */
  outageHours: number;
  /** Bytes of one uploaded file. */
  uploadBytes: number;
  /** Bytes of all uploaded files of a key, with those of unfinished uploads. */
  uploadBytesPerKey: number;
}

/**
 * What follows when the answer of a paid request was lost (a kill, a broken connection, a 504). `stop`: nothing is asked again;
 * the image is `OUTCOME_UNKNOWN` until a person asks again. `once`: one more request is sent, and the image is marked.
 */
export const UNKNOWN_OUTCOMES = ["stop", "once"] as const;
export type UnknownOutcome = (typeof UNKNOWN_OUTCOMES)[number];

const MIB = 1024 * 1024;

export const DEFAULT_LIMITS: Limits = {
  itemsPerBatch: 200,
  outputImagesPerBatch: 200,
  linesPerJob: 10_000,
  outputCountPerItem: 4,
  promptChars: 8000,
  referenceImageBytes: 10 * MIB,
  referenceImagesPerBatch: 1000,
  referenceBytesPerBatch: 128 * MIB,
  createBodyBytes: 192 * MIB,
  realtimeBodyBytes: 100 * MIB,
  zipItems: 200,
  zipBytes: 2048 * MIB,
  downloadsPerKey: 2,
  requestsPerMinute: 600,
  concurrentRequests: 16,
  failedAuthPerMinute: 0,
  realtimeTimeoutSeconds: 300,
  outageHours: 24,
  uploadBytes: 2048 * MIB,
  uploadBytesPerKey: 20_480 * MIB,
};

/** What no service takes. A client that does not know the limits of a service checks against these. */
export const WIDEST_LIMITS: Limits = {
  ...DEFAULT_LIMITS,
  promptChars: 1_000_000,
  outputCountPerItem: 10_000,
  referenceImageBytes: DEFAULT_LIMITS.createBodyBytes,
};

/** The limits of a batch that a service announces with its list of models, under these names. */
export const ANNOUNCED_LIMITS = {
  items_per_batch: "itemsPerBatch",
  output_images_per_batch: "outputImagesPerBatch",
  output_count_per_item: "outputCountPerItem",
  prompt_chars: "promptChars",
  reference_image_bytes: "referenceImageBytes",
  reference_images_per_batch: "referenceImagesPerBatch",
  reference_bytes_per_batch: "referenceBytesPerBatch",
  create_body_bytes: "createBodyBytes",
} as const satisfies Record<string, keyof Limits>;

/** Limits that no configuration changes. */
export const FIXED_LIMITS = {
  customIdChars: 128,
  taskNameChars: 255,
  metadataPairs: 20,
  metadataKeyChars: 64,
  metadataValueChars: 256,
  idempotencyKeyChars: 255,
  referenceIdChars: 80,
  referenceTypeChars: 40,
  referencePixels: 64_000_000,
  referencePixelsPerRequest: 400_000_000,
  /** The limit of any image that is read: pixels of its width and of its height. */
  imageSidePx: 16_384,
  imageFrames: 1000,
  /** Passes of a JPEG over its pixels. Progressive ones of ordinary programs have about 10. */
  imageScans: 100,
  /** Chunks of a PNG or WebP, segments of a JPEG. */
  imageChunks: 100_000,
  /** Bytes that its decoder may hold at once; what is made of it takes up to 200 MB more. */
  imageDecodeBytes: 280_000_000,
  promptPreviewChars: 120,
  /** The entries of each list of a real-time body; the parts of all messages count as one. */
  realtimeEntries: 1000,
  /** Lines of a batch job that come with its request, the fields of each on average, and the bytes of that request. */
  inlineLines: 100,
  inlineLineFields: 1000,
  inlineBodyBytes: 20 * MIB,
  /** Prompts, earlier turns and keys of all lines of a job: they are in memory together when its items are written. */
  jobTextChars: 96 * MIB,
  /** The client's name of a line, and in characters of JSON when it is no text. */
  lineKeyChars: 512,
  lineKeyJsonChars: 4096,
  /** Jobs of one key that have not ended. */
  runningJobsPerKey: 100,
  jobPageDefault: 20,
  jobPageMax: 100,
  jsonDepth: MOST_JSON_LEVELS,
  /** Entries of lists and fields of objects, in all. */
  jsonElements: 200_000,
  /** The fields of a body, and the entries of lists that it needs. More where the configuration allows a batch with more. */
  jsonFields: 10_000,
  /** Bytes of the name of a field. */
  jsonNameBytes: 256,
  /** Bytes of a text that is neither a prompt nor an image. */
  jsonTextBytes: 64 * 1024,
  batchPageDefault: 20,
  batchPageMax: 100,
  itemPageDefault: 100,
  itemPageMax: 500,
  ledgerPageDefault: 50,
  ledgerPageMax: 200,
  /** Days that one request about usage may cover. */
  usageDays: 366,
  /** Small pictures that a key may have asked for at once. */
  thumbnailsPerKey: 32,
  /** Items whose small pictures one answer holds. */
  thumbnailPageMax: 50,
  /** Images of one edit in OpenAI's API, and the bytes of each. A model may take fewer. */
  editImages: 16,
  editImageBytes: 50 * MIB,
  /** How long an image can be fetched by its URL. */
  imageLinkHours: 1,
  openUploadsPerKey: 16,
  /** An uploaded file is deleted after this many hours. */
  fileHours: 48,
  fileNameChars: 40,
  fileDisplayNameChars: 512,
  fileTypeChars: 255,
  filePageDefault: 10,
  filePageMax: 100,
} as const;

/**
 * The problem of a caller's `custom_id`, or null. The service checks it, and the client before it sends.
 */
export function customIdProblem(id: string): string | null {
  const max = FIXED_LIMITS.customIdChars;
  if (id.length === 0 || isLongerThan(id, max)) return `must have 1 to ${max} characters`;
  if (/\p{Cc}|[/\\]/u.test(id) || hasUnstorableText(id)) {
    return "must not hold control characters, `/` or `\\`";
  }
  return id === "." || id === ".." ? "must not be `.` or `..`" : null;
}

/** The id of an item that has none: its position in the request (or run), counted from 1. */
export function generatedCustomId(position: number): string {
  return `item_${String(position).padStart(6, "0")}`;
}

/** Whether an id says nothing but a position. */
export function isGeneratedId(customId: string): boolean {
  return /^item_\d{6,}(-\d+)?$/.test(customId);
}

/** The ids that an item with `outputCount` images becomes: itself for one, `_01`, `_02`, … for more. */
export function expandedCustomIds(customId: string, outputCount: number): string[] {
  if (outputCount === 1) return [customId];
  return Array.from({ length: outputCount }, (_, i) => `${customId}_${String(i + 1).padStart(2, "0")}`);
}

/** The most reference images that an item may have for a model of which nothing else is known; null: its name does not say. */
export function referenceLimitByName(model: string): number | null {
  if (model.includes("flash-image") || model.includes("flash-lite-image")) return 3;
  return model.includes("pro-image") ? 14 : null;
}

const NOUNS: Record<string, string> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
};

/**
 * The messages of a schema (zod's `error`) for a missing field and for a wrong type. Null keeps the message of any
 * other problem.
 */
export const inWords: z.core.$ZodErrorMap = ({ code, expected, input }) => {
  if (code !== "invalid_type") return null;
  const noun = NOUNS[String(expected)] ?? String(expected);
  return input === undefined ? `is required: ${noun}` : `must be ${noun}`;
};
