import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import type { SentTexts } from "../../domain/images/sent-image.ts";
import { type BodyBudgets, BodyReservation } from "./body-reservation.ts";
import { ImageExtraction, type ImageTexts } from "./image-extraction.ts";
import type { JsonParser } from "./parse-json.ts";
import { BODY_RATE, type BodyRate, readBody, tooLarge } from "./read-body.ts";

export interface JsonBodyOptions {
  maxBytes: number;
  bodyBudgets: BodyBudgets;
  jsonParser: JsonParser;
  /** Where images are in it: see `JsonBody.sent`. */
  images: ImageTexts;
  /** For tests. */
  pace?: BodyRate;
}

export interface JsonBody {
  value: unknown;
  /** Long texts of a large body at the place of images, by what stands for them in the value. */
  sent: SentTexts;
}

/**
 * Reads the body of a request as JSON and works with it. What it takes of memory and disk is bounded, and given back
 * when the work has ended, however it ends. Throws `UNSUPPORTED_MEDIA_TYPE`, `REQUEST_TOO_LARGE`, `REQUEST_TIMEOUT`,
 * `RATE_LIMITED`, `INVALID_JSON`, or what is thrown when the disk takes no more.
 */
export async function withJsonBody<T>(
  request: Request,
  response: Response,
  options: JsonBodyOptions,
  work: (body: JsonBody) => Promise<T>,
): Promise<T> {
  const { maxBytes, images, bodyBudgets, jsonParser, pace = BODY_RATE } = options;
  refuseOtherTypes(request);
  const isChunked = request.get("transfer-encoding") !== undefined;
  const announced = isChunked ? 0 : Number(request.get("content-length") ?? 0);
  // An announced excess is refused without reading.
  if (announced > maxBytes) throw tooLarge(maxBytes);
  const caller = response.locals.key?.id ?? request.socket.remoteAddress ?? "";
  const intake = new ImageExtraction(
    images,
    new BodyReservation(bodyBudgets, caller, announced, pace.waitMs),
  );
  try {
    mayContinue(request, response);
    await readBody(request, { maxBytes, pace, add: (chunk) => intake.add(chunk) });
    const { pieces, sent, problem } = await intake.end();
    return await work({ value: await jsonParser.parse(pieces, problem), sent });
  } finally {
    await intake.discard();
  }
}

function refuseOtherTypes(request: Request): void {
  const isTyped = (request.get("content-type") ?? "").trim() !== "";
  // Null means that there is no body at all, which is no matter of its type.
  if (isTyped && request.is(["json", "+json"]) === false) {
    throw new ImgbatchError("UNSUPPORTED_MEDIA_TYPE");
  }
  // Both headers can say that the body is compressed; chunks are no compression.
  for (const [header, plain] of [
    ["Content-Encoding", "identity"],
    ["Transfer-Encoding", "chunked"],
  ] as const) {
    const encoding = (request.get(header) ?? "").trim().toLowerCase();
    if (encoding === "" || encoding === plain) continue;
    const message = `${header}: send the body as it is, not compressed.`;
    throw new ImgbatchError("UNSUPPORTED_MEDIA_TYPE", message, { param: header });
  }
}

function mayContinue(request: Request, response: Response): void {
  if (request.get("expect")?.toLowerCase() !== "100-continue") return;
  response.locals.mayContinue = true;
  response.writeContinue();
}
