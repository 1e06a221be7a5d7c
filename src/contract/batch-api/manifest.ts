import { z } from "zod";

/** A file of the ZIP, as `manifest.json` lists it. */
const manifestFileSchema = z.object({
  custom_id: z.string(),
  filename: z.string().describe("full name of the entry in the ZIP"),
  mime_type: z.string(),
  image_index: z.int(),
  size: z.int(),
  sha256: z.string(),
});

/** `manifest.json` of a batch's ZIP. */
const manifestSchema = z.object({
  batch_id: z.string(),
  model: z.string(),
  task_name: z.string(),
  created_at: z.int(),
  item_count: z.int(),
  success_count: z.int(),
  fail_count: z.int(),
  files: z.array(manifestFileSchema),
});
export type Manifest = z.infer<typeof manifestSchema>;

/** `errors.json` of a batch's ZIP: one entry per failed item. */
const manifestErrorSchema = z.object({
  custom_id: z.string(),
  code: z.string(),
  message: z.string(),
  source: z.string(),
});
export type ManifestError = z.infer<typeof manifestErrorSchema>;
