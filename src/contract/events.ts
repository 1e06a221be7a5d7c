import { z } from "zod";

const count = z.int().min(0);
const batch = { batch_id: z.string() };
const problem = z.object({ code: z.string(), message: z.string() });
/** An image belongs to a batch, except those of `generate`. */
const batchOrNone = { batch_id: z.string().nullable().describe("null for images of generate") };
const made = {
  ...batch,
  item_count: count.nullable().describe("null when the service does not say"),
};

/** An event of a command, without the fields that every event has. */
const shapes = [
  z.object({ event: z.literal("run_started"), command: z.string(), version: z.string() }),
  z.object({
    event: z.literal("run_planned"),
    directory: z.string(),
    model: z.string(),
    item_count: count,
    image_count: count,
    batch_count: count,
  }),
  z.object({ event: z.literal("batch_created"), ...made }),
  z.object({ event: z.literal("batch_replayed"), ...made }).describe("it had been submitted before"),
  z
    .object({
      event: z.literal("progress"),
      ...made,
      status: z.string(),
      success_count: count,
      fail_count: count,
      waiting: problem
        .extend({ until: z.iso.datetime().nullable().describe("null: until the configuration changes") })
        .nullable()
        .describe("why its images cannot be made now"),
    })
    .describe("a batch has changed"),
  z.object({
    event: z.literal("item_ended"),
    ...batchOrNone,
    custom_id: z.string(),
    status: z.string(),
    error: problem.nullable(),
  }),
  z
    .object({
      event: z.literal("file_saved"),
      ...batchOrNone,
      custom_id: z.string().nullable().describe("null for the image of a single prompt"),
      path: z.string().describe("from the directory of the run on; of a single prompt, as it is printed"),
      bytes: count,
      sha256: z.string(),
    })
    .describe("on disk and verified; not said of files that were there before"),
  z
    .object({ event: z.literal("retry"), ...problem.shape, delay_ms: z.number() })
    .describe("a request failed in a way that may pass, and is sent again after the pause"),
  z.object({ event: z.literal("warning"), message: z.string() }),
  z.object({
    event: z.literal("run_ended"),
    ok: z.boolean(),
    exit_code: z.int(),
    error: problem.nullable(),
  }),
] as const;

const runEventSchema = z.discriminatedUnion("event", shapes);
export type RunEvent = z.infer<typeof runEventSchema>;

/** A line of `--events`: NDJSON, from `run_started` to `run_ended`. */
export const eventLineSchema = z.intersection(
  z.object({
    /** Counts up when a field changes its meaning; new fields and new events do not. */
    schema_version: z.literal(1),
    time: z.iso.datetime().describe("UTC, with milliseconds"),
  }),
  runEventSchema,
);
export type EventLine = z.infer<typeof eventLineSchema>;
