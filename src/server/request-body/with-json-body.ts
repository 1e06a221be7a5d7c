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
  /** The path of the images in the body: see `JsonBody.sent`. */
  images: ImageTexts;
  /** For tests. */
  rate?: BodyRate;
}

export interface JsonBody {
  value: unknown;
  /** The images that were taken out of a large body, by the name that replaces each in `value`. */
  sent: SentTexts;
}

/**
 * Reads the body of a request as JSON and passes it to `work`. Memory and disk are bounded, and released when the work has
 * ended, however it ends. Throws `UNSUPPORTED_MEDIA_TYPE`, `REQUEST_TOO_LARGE`, `REQUEST_TIMEOUT`, `RATE_LIMITED`,
 * `INVALID_JSON`, and the error of a disk that cannot be written.
 */
export async function withJsonBody<T>(
  request: Request,
  response: Response,
  options: JsonBodyOptions,
  work: (body: JsonBody) => Promise<T>,
): Promise<T> {
  const { maxBytes, images, bodyBudgets, jsonParser, rate = BODY_RATE } = options;
  refuseOtherTypes(request);
  const isChunked = request.get("transfer-encoding") !== undefined;
  const announced = isChunked ? 0 : Number(request.get("content-length") ?? 0);
  // A body that announces too many bytes is refused without reading it.
  if (announced > maxBytes) throw tooLarge(maxBytes);
  const caller = response.locals.key?.id ?? request.socket.remoteAddress ?? "";
  const extraction = new ImageExtraction(
    images,
    new BodyReservation(bodyBudgets, caller, announced, rate.waitMs),
  );
  try {
    mayContinue(request, response);
    await readBody(request, { maxBytes, rate, add: (chunk) => extraction.add(chunk) });
    const { pieces, sent, problem } = await extraction.end();
    return await work({ value: await jsonParser.parse(pieces, problem), sent });
  } finally {
    await extraction.discard();
  }
}

function refuseOtherTypes(request: Request): void {
  const type = (request.get("content-type") ?? "").trim();
  const isUsual = type === "" || type === "application/json";
  // `request.is` returns null when there is no body: the parser reports that.
  if (!isUsual && request.is(["json", "+json"]) === false) {
    throw new ImgbatchError("UNSUPPORTED_MEDIA_TYPE");
  }
  refuseEncodings(request);
}

/** Throws `UNSUPPORTED_MEDIA_TYPE` for a compressed body. */
export function refuseEncodings(request: Request): void {
  // Either header can announce compression; `chunked` is not compression.
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

/** Tells a client that waits for it to send the body. */
export function mayContinue(request: Request, response: Response): void {
  if (request.get("expect")?.toLowerCase() !== "100-continue") return;
  response.locals.mayContinue = true;
  response.writeContinue();
}
