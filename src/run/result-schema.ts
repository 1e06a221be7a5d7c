import { z } from "zod";

const count = z.int().min(0);

const fileSchema = z.looseObject({
  path: z.string().describe("from the directory of the run on, with /"),
  entry: z.string().optional().describe("the name inside path, when that is a ZIP that was kept"),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: count,
  mime_type: z.string(),
  width: count.nullable(),
  height: count.nullable(),
});

/**
 * A line of `results.jsonl` (`ResultLine`): one for each image that was asked for, in the order of the input.
 * Rule: SCHEMA-1.
 */
export const resultSchema = z.looseObject({
  custom_id: z.string(),
  status: z.string().describe("success or failed; another service may have words of its own"),
  batch_id: z.string(),
  files: z.array(fileSchema).describe("empty when there is no image"),
  verified: z.enum(["sha256", "crc32", "size"]).optional().describe("how the files could be checked"),
  error: z
    .looseObject({ code: z.string(), message: z.string(), source: z.string().nullable() })
    .optional()
    .describe("why there is no image"),
});
