import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { type BodyBudgets, BodyReservation } from "./body-reservation.ts";
import type { BodyFormat } from "./body-shape.ts";
import { ImageExtraction, type ImageTexts, type TakenBody } from "./image-extraction.ts";
import { BODY_RATE, type BodyRate, readBody, tooLarge } from "./read-body.ts";

export interface JsonBodyOptions {
  maxBytes: number;
  bodyBudgets: BodyBudgets;
  format: BodyFormat;
  /** How the images of a large body are taken out of it: see `TakenBody.sent`. Null when they stay. */
  images: ImageTexts | null;
  /** For tests. */
  rate?: BodyRate;
}

/**
 * Reads the body of a request as JSON and passes it to `work`. Memory and disk are bounded, and released when the work has
 * ended, however it ends. Throws `UNSUPPORTED_MEDIA_TYPE`, `REQUEST_TOO_LARGE`, `REQUEST_TIMEOUT`, `RATE_LIMITED`,
 * `INVALID_JSON`, the error of a field that exceeds a bound of the format, and that of a disk that cannot be written.
 */
export async function withJsonBody<T>(
  request: Request,
  response: Response,
  options: JsonBodyOptions,
  work: (body: TakenBody) => Promise<T>,
): Promise<T> {
  const { maxBytes, format, images, bodyBudgets, rate = BODY_RATE } = options;
  refuseOtherTypes(request);
  const isChunked = request.get("transfer-encoding") !== undefined;
  const announced = isChunked ? 0 : Number(request.get("content-length") ?? 0);
  // A body that announces too many bytes is refused without reading it.
  if (announced > maxBytes) throw tooLarge(maxBytes);
  const caller = response.locals.key?.id ?? request.socket.remoteAddress ?? "";
  const reservation = new BodyReservation(bodyBudgets, caller, announced, rate.waitMs);
  const extraction = new ImageExtraction(format, images, reservation);
  try {
    mayContinue(request, response);
    await readBody(request, { maxBytes, rate, add: (chunk) => extraction.add(chunk) });
    return await work(await extraction.end());
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
