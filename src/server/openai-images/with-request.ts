import type { Request, Response } from "express";
import type { z } from "zod";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { editImagesSchema, generateImagesSchema, type ImagesFields } from "../../contract/openai-api.ts";
import { inWords } from "../../contract/text-rules.ts";
import { type FindFileImage, fileImagesOf } from "../../domain/files/files.ts";
import type { SentTexts } from "../../domain/images/sent-image.ts";
import type { ApiDeps } from "../deps.ts";
import type { ReceivedImage } from "../input-images.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { type BodyFormat, type Shape, shapeOf } from "../request-body/body-shape.ts";
import { withJsonBody } from "../request-body/with-json-body.ts";
import { fieldError, schemaProblem } from "../request-problems.ts";
import { imagesOfJson, refuseMask } from "./images.ts";
import { withForm } from "./read-form.ts";

/** Fields whose values come as texts in a form, and from some clients in JSON, too. */
const NUMBERS: readonly string[] = ["n", "output_compression"];
const TRUTHS: readonly string[] = ["stream"];

/** The shape of a request as JSON. */
export const IMAGES_SHAPE = shapeOf(editImagesSchema, { prompt: "prompt", "images[].image_url": "image" });
/** How its images are written. */
export const EDIT_IMAGES = {
  base64: "lenient",
  areDataUrls: true,
  maxBytes: FIXED_LIMITS.editImageBytes,
} as const;

/** The format of a body with one request. */
export function imagesFormat(
  { promptChars }: Pick<Limits, "promptChars">,
  shape: Shape = IMAGES_SHAPE,
): BodyFormat {
  const code = () => "REALTIME_INVALID_ARGUMENT" as const;
  return { shape, prompts: 1, images: FIXED_LIMITS.editImages, promptChars, code };
}

/** A request whose fields have their types. The images were not looked into yet. */
export interface SentRequest {
  fields: ImagesFields;
  images: readonly ReceivedImage[];
}

/**
 * Reads a request and passes it to `work`: an edit as a form or as JSON, anything else as JSON. Its files on the disk
 * are removed when the work has ended. Throws the errors of `withForm` and `withJsonBody`.
 */
export async function withRequest(
  deps: ApiDeps,
  request: Request,
  response: Response,
  isEdit: boolean,
  work: (sent: SentRequest) => Promise<void>,
): Promise<void> {
  if (isEdit && request.is("multipart/form-data")) {
    return withForm(deps, request, response, async ({ fields, images }) => {
      const parsed = parse(generateImagesSchema, fields);
      if (images.length === 0) throw fieldError("REALTIME_INVALID_ARGUMENT", "image", "is required: a file");
      await work({ fields: parsed, images });
    });
  }
  const images = { ...EDIT_IMAGES, blobs: deps.blobs };
  const options = {
    ...deps,
    maxBytes: deps.limits.realtimeBodyBytes,
    format: imagesFormat(deps.limits),
    images,
  };
  await withJsonBody(request, response, options, async ({ value, sent }) => {
    const files = fileImagesOf(deps, callerOf(response).key.id);
    try {
      await work(await readJson(value, isEdit, sent, files.find));
    } finally {
      await files.release();
    }
  });
}

/** Reads a request that came as JSON. Throws `REALTIME_INVALID_ARGUMENT`. */
export async function readJson(
  value: unknown,
  isEdit: boolean,
  sent: SentTexts,
  findFile: FindFileImage,
): Promise<SentRequest> {
  if (!isEdit) return { fields: parse(generateImagesSchema, value), images: [] };
  const fields = parse(editImagesSchema, value);
  const images = await imagesOfJson(fields, sent, findFile);
  if (images.length === 0) throw fieldError("REALTIME_INVALID_ARGUMENT", "images", "must not be empty");
  return { fields, images };
}

/** Throws `REALTIME_INVALID_ARGUMENT`. */
function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  const given = isObject ? withValues(value) : value;
  if (isObject && (given as { mask?: unknown }).mask !== undefined) throw refuseMask();
  const parsed = schema.safeParse(given, { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error as z.ZodError, "REALTIME_INVALID_ARGUMENT");
  return parsed.data;
}

/** Leaves out fields that are null or empty, and reads a number or a truth value that came as text. */
function withValues(fields: object): Record<string, unknown> {
  const entries = Object.entries(fields).filter(([, value]) => value !== null && value !== "");
  return Object.fromEntries(entries.map(([name, value]) => [name, typedValue(name, value)]));
}

function typedValue(name: string, value: unknown): unknown {
  if (typeof value !== "string") return value;
  if (NUMBERS.includes(name) && /^\d{1,9}$/.test(value)) return Number(value);
  if (TRUTHS.includes(name) && /^(true|false)$/i.test(value)) return value.toLowerCase() === "true";
  return value;
}
