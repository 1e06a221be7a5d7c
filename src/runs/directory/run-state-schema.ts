import { z } from "zod";
import { IMAGE_MIME_TYPES } from "../../contract/image-formats.ts";
import { parseJson, TooDeepJson } from "../../kernel/json.ts";
import { NAMINGS } from "./names.ts";

/** What an image is asked for instead of what its prompt says, when a person wants another one. Absent: as the prompt says. */
const madeAgainSchema = z.looseObject({
  model: z.string().optional(),
  seed: z.int().min(0).optional(),
  /** What should change: it is the prompt. */
  edit: z.string().optional(),
  /** The SHA-256 of the picture that is changed: the only reference image. */
  picture: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional(),
});
export type MadeAgain = z.infer<typeof madeAgainSchema>;

/**
 * The known facts of a batch, in the order in which they are written: a state that is the same is not written again. `intent`: the request is about to leave, or left before a crash without an answer.
 * `created`: the service has returned an id. `unknown`: the answer was lost; the same idempotency key finds the batch.
 * `left`: no answer came, and the run went on with another service or key, which does not know the batch.
 */
const runBatchFields = z.looseObject({
  index: z.int().min(0),
  /** The service and key of the request. */
  base_url: z.string(),
  key_fingerprint: z.string(),
  id: z.string().min(1).nullable(),
  idempotency_key: z
    .string()
    .regex(/^[\x20-\x7e]{1,255}$/)
    .nullable(),
  state: z.enum(["intent", "created", "unknown", "left"]),
  status: z.string().nullable(),
  item_count: z.int().nullable(),
  success_count: z.int().nullable(),
  fail_count: z.int().nullable(),
  estimated_cost: z.number().nullable(),
  actual_cost: z.number().nullable(),
  parent_batch_id: z.string().nullable(),
  /** When the service made the batch, in seconds; null if it does not say. */
  created_at: z.number().nullable(),
  /** 0 for the submission, then one more for each retry and each update. */
  round: z.int().min(0),
  /** The model of its request. Absent: that of the run. */
  model: z.string().optional(),
  /** The provider that makes it in place of that of the run, for each of its images with its own model. Absent: as the model says. */
  provider: z.string().optional(),
  /**
   * The images of it that were asked for before and may be billed all the same, because an answer was lost or a job was ended: by
   * id, with the US dollars that this may cost at most; 0 where that is not known.
   */
  may_be_billed: z.record(z.string(), z.number()).optional(),
  /** The number of requested images. Absent when another program made the request. */
  asked_count: z.int().min(1).optional(),
  /** The prompts that it makes, for a batch of the submission: the first line of `input.jsonl`, from 0, and their number. */
  prompts: z.tuple([z.int().min(0), z.int().min(1)]).optional(),
  /** The images that it makes, for one of a retry or an update, in the order of the request. */
  images: z.array(z.string()).min(1).optional(),
  /**
   * Set where a person wanted other pictures than those that are there: for each of its images what differs from the prompt.
   * `flags`: those of the command, so that the same one goes on. `told_at`: when it has said how it ended, so that the same one makes others from then on.
   */
  again: z
    .looseObject({
      flags: z.record(z.string(), z.string()),
      told_at: z.iso.datetime().optional(),
      images: z.record(z.string(), madeAgainSchema),
    })
    .optional(),
  /** The amounts are no real money: the images are drawn. */
  play_money: z.boolean().optional(),
  /** Images that were not here after the last fetch although they have not failed. */
  missing_count: z.int().min(0).optional(),
  /** An update cancels the batch, because prompts of images that were not made have changed. */
  replaced: z.boolean().optional(),
  /** The service has refused the request, so that no batch was made. */
  refused: z.boolean().optional(),
});
const runBatchSchema = runBatchFields
  .refine((batch) => (batch.state === "created" ? batch.id : batch.idempotency_key) !== null, {
    error: "lacks its id, or its key",
  })
  .refine(({ idempotency_key: key, prompts, images }) => key === null || (prompts ?? images) !== undefined, {
    error: "lacks the prompts that it makes",
  });
export type RunBatch = z.infer<typeof runBatchSchema>;

/** The settings that all batches of a run share. Null when the run did not make them. */
const submittedRequestSchema = z.looseObject({
  model: z.string(),
  task_name: z.string().nullable(),
  response_mime_type: z.enum(IMAGE_MIME_TYPES),
  metadata: z.record(z.string(), z.string()).nullable(),
  /** Set if an upstream of the embedded service makes the images, which it draws otherwise. */
  images: z.literal("real").optional(),
  /** Type and origin of the upstream of each model whose address is not the vendor's own. */
  origins: z.record(z.string(), z.string()).optional(),
  /** The flags that were typed for all prompts, such as `--size`. */
  flags: z.record(z.string(), z.string()).optional(),
  /** The default quality of each model that has one: a prompt that names it asks for nothing else. */
  default_qualities: z.record(z.string(), z.string()).optional(),
});

const runStateFields = z.looseObject({
  schema_version: z.literal(1),
  /** Set for a run without batches, where each image is a request of its own. */
  kind: z.literal("realtime").optional(),
  /** The model of such a run, and the type of its images; null for the usual one. */
  model: z.string().optional(),
  mime_type: z.enum(IMAGE_MIME_TYPES).nullable().optional(),
  /** Type and origin of its upstream, unless the address is the vendor's own. */
  origin: z.string().optional(),
  base_url: z.string(),
  key_fingerprint: z.string(),
  /** The upstream that was named for the embedded service; absent when none was. */
  upstream: z.string().optional(),
  input_sha256: z.string().nullable(),
  is_fresh: z.boolean(),
  created_at: z.iso.datetime(),
  finished_at: z.iso.datetime().nullable(),
  request: submittedRequestSchema.nullable(),
  batches: z.array(runBatchSchema),
  /** How the files of images are named. Absent: by their ids. */
  names: z.enum(NAMINGS).optional(),
  /** The changes of the prompts, in order. `superseded`: images that the batches of earlier rounds do not stand for any more. */
  updates: z.array(z.looseObject({ round: z.int().min(1), superseded: z.array(z.string()) })).optional(),
  /** The key of a run without batches. See `requestKeyOf`. */
  request_keys: z
    .looseObject({
      seed: z.string().regex(/^[0-9a-f]{32}$/),
      renewed: z.record(z.string(), z.int().min(1)),
    })
    .optional(),
});

const runStateSchema = runStateFields.refine(
  ({ kind, batches }) => kind === "realtime" || batches.length > 0,
  {
    error: "lacks its batches",
  },
);

/** `imgbatch.json`: which batches a directory belongs to. Never holds a key, only its fingerprint. */
export type RunState = z.infer<typeof runStateSchema>;

/** Reads the bytes of a run state. Returns what is wrong if they are none, such as the first wrong field. */
export function parseRunState(data: Uint8Array): RunState | string {
  let json: unknown;
  try {
    json = parseJson(new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch (error) {
    return error instanceof TooDeepJson ? `it ${error.message}` : "it is not JSON";
  }
  const read = runStateSchema.safeParse(json);
  if (read.success) return read.data;
  const { path = [], message = "" } = read.error.issues[0] ?? {};
  return [path.join("."), message].filter((part) => part !== "").join(": ");
}
