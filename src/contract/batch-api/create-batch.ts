import { z } from "zod";
import type { ImageMimeType } from "../images/image-types.ts";

/**
 * The types of a create request's body. Rules about values (lengths, limits, uniqueness) follow in a
 * fixed order, each with its own error code, where the request is checked. Null stands for an absent optional field.
 */
export const referenceImageSchema = z.object({
  id: z.string().nullish(),
  type: z.string().nullish(),
  mime_type: z.string(),
  data: z.string().nullish().describe("standard Base64, no data URL"),
  storage_uri: z.string().nullish(),
});

export const createItemSchema = z.object({
  custom_id: z.string().nullish(),
  prompt: z.string(),
  output_count: z.int().nullish(),
  reference_images: z.array(referenceImageSchema).nullish(),
});

export const createBatchSchema = z.object({
  model: z.string(),
  task_name: z.string().nullish(),
  parent_batch_id: z.string().nullish(),
  items: z.array(createItemSchema).min(1),
  response_mime_type: z.string().nullish(),
  aspect_ratio: z.unknown().optional(),
  image_size: z.string().nullish(),
  metadata: z.record(z.string(), z.string()).nullish(),
});

export interface ReferenceImageBody {
  id?: string;
  type?: string;
  mime_type: ImageMimeType;
  /** Standard Base64. */
  data: string;
}

export interface CreateItemBody {
  custom_id?: string;
  prompt: string;
  output_count?: number;
  reference_images?: ReferenceImageBody[];
}

/** The body that a client sends. */
export interface CreateBatchBody {
  model: string;
  task_name?: string;
  parent_batch_id?: string;
  items: CreateItemBody[];
  response_mime_type?: ImageMimeType;
  image_size?: "1K";
  metadata?: Record<string, string>;
}
