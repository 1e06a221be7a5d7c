import { createHash } from "node:crypto";
import type { Request, Response } from "express";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { generateImagesSchema } from "../../contract/openai-api.ts";
import { imageInDraft } from "../../domain/images/sent-image.ts";
import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import { formatBytes } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import type { ReceivedImage } from "../input-images.ts";
import { BodyReservation } from "../request-body/body-reservation.ts";
import { boundaryOf, type Part, readParts, textOf } from "../request-body/multipart.ts";
import { BODY_RATE } from "../request-body/read-body.ts";
import { streamBody } from "../request-body/stream-body.ts";
import { fieldError } from "../request-problems.ts";
import { receivedImage, refuseMask, tooManyImages } from "./images.ts";

const KIB = 1024;
const MOST_PARTS = 100;
const FIELD_BYTES = 64 * KIB;
const { editImages, editImageBytes } = FIXED_LIMITS;
/** `image`, `image[]` and `image[0]`. */
const IMAGE_NAME = /^image(?:\[\d*\])?$/;
const TEXT_NAMES = Object.keys(generateImagesSchema.shape);

/** A form whose images are on the disk. */
export interface ImagesForm {
  fields: Record<string, string>;
  images: ReceivedImage[];
}

/**
 * Reads a form (RFC 7578) and passes it to `work`. The images go to the disk while they arrive, and are removed when the
 * work has ended, however it ends. Throws `REALTIME_INVALID_ARGUMENT`, `UNSUPPORTED_MEDIA_TYPE`, `REQUEST_TOO_LARGE`,
 * `REQUEST_TIMEOUT`, `RATE_LIMITED`, and the error of a disk that cannot be written.
 */
export async function withForm<T>(
  deps: ApiDeps,
  request: Request,
  response: Response,
  work: (form: ImagesForm) => Promise<T>,
): Promise<T> {
  const boundary = boundaryOf(request.get("content-type"));
  const form: ImagesForm = { fields: {}, images: [] };
  const drafts: BlobDraft[] = [];
  const caller = response.locals.key.id;
  const reservation = new BodyReservation(deps.bodyBudgets, caller, 0, BODY_RATE.waitMs);
  const ended = new AbortController();
  const store = async (part: Part) => {
    const draft = deps.blobs.draft();
    drafts.push(draft);
    const at = `image[${form.images.length}]`;
    form.images.push(await storeImage(part, at, draft, reservation, ended.signal));
  };
  // A character of a prompt takes up to four bytes.
  const fieldBytes = Math.max(FIELD_BYTES, 4 * deps.limits.promptChars + KIB);
  const readPart = async (part: Part) => {
    const { name = "" } = part;
    if (name === "mask") throw refuseMask();
    if (IMAGE_NAME.test(name)) {
      if (form.images.length === editImages) throw tooManyImages(editImages + 1, editImages);
      await store(part);
    } else if (part.fileName === undefined) form.fields[name] = await textOf(part, fieldBytes);
    else if (TEXT_NAMES.includes(name)) throw invalid(name, "must be a text, not a file");
  };
  try {
    const parts = readParts(boundary, MOST_PARTS, readPart);
    await streamBody(request, response, { maxBytes: deps.limits.realtimeBodyBytes, add: parts.add });
    await parts.end();
    reservation.finish();
    return await work(form);
  } finally {
    ended.abort(new Error("the request ended early"));
    reservation.leave();
    // The next start of the service removes drafts that cannot be removed now.
    await Promise.allSettled(drafts.map((draft) => draft.discard()));
  }
}

async function storeImage(
  part: Part,
  at: string,
  draft: BlobDraft,
  reservation: BodyReservation,
  ended: AbortSignal,
): Promise<ReceivedImage> {
  const hash = createHash("sha256");
  let sizeBytes = 0;
  for await (const bytes of part.bytes()) {
    sizeBytes += bytes.length;
    if (sizeBytes > editImageBytes) {
      throw invalid(at, `is larger than ${formatBytes(editImageBytes)}`);
    }
    await reservation.diskFor(bytes.length);
    // A draft that was discarded would begin again.
    ended.throwIfAborted();
    await draft.write(bytes);
    hash.update(bytes);
  }
  if (sizeBytes === 0) throw invalid(at, "is empty: send the bytes of an image");
  await draft.finish();
  return receivedImage(imageInDraft(draft, { sizeBytes, sha256: hash.digest("hex") }), at);
}

const invalid = (param: string, problem: string) => fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
