import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { BodyBudget, type BodyPlace } from "../body-budget.ts";
import { freeMemorySoon } from "../free-memory.ts";
import { parseJson } from "../parse-json.ts";
import { BODY_PACE, type BodyPace, readBody, tooLarge } from "../read-body.ts";

const MIB = 1024 * 1024;
/** A body up to this size shares memory only with others of its kind: it never waits for a large one. */
const SMALL_BODY_BYTES = 4 * MIB;
const small = new BodyBudget(64 * MIB, 32 * MIB);
const large = new BodyBudget(256 * MIB, 64 * MIB);

export interface JsonBodyOptions {
  /** Long texts of this name that are strict Base64 come as `DecodedBase64`; default: none do. */
  base64Name?: string;
  /** For tests. */
  pace?: BodyPace;
}

/**
 * Reads the body of a request as JSON. The memory of large bodies is bounded, and taken until the answer has been
 * sent. Throws `UNSUPPORTED_MEDIA_TYPE`, `REQUEST_TOO_LARGE`, `REQUEST_TIMEOUT`, `RATE_LIMITED` or `INVALID_JSON`.
 * Rules: API-4, API-5, API-6, LOAD-1, LOAD-2.
 */
export async function readJsonBody(
  request: Request,
  response: Response,
  maxBytes: number,
  options: JsonBodyOptions = {},
): Promise<unknown> {
  refuseOtherTypes(request);
  const isChunked = request.get("transfer-encoding") !== undefined;
  const announced = isChunked ? 0 : Number(request.get("content-length") ?? 0);
  // An announced excess is refused without reading.
  if (announced > maxBytes) throw tooLarge(maxBytes);
  const places = new Places(response.locals.key?.id ?? request.socket.remoteAddress ?? "", announced);
  response.once("close", () => places.leave());
  try {
    mayContinue(request, response);
    const { pace = BODY_PACE } = options;
    const pieces = await readBody(request, { maxBytes, pace, placeFor: (size) => places.placeFor(size) });
    places.finish();
    const value = await parseJson(pieces, options.base64Name);
    places.leaveSmall();
    return value;
  } catch (error) {
    places.leave();
    throw error;
  }
}

/** Where a body of one caller has its bytes: a small place, or a large one as soon as it is known to be large. */
class Places {
  readonly #caller: string;
  #place: BodyPlace;
  #isLarge: boolean;

  constructor(caller: string, announced: number) {
    this.#caller = caller;
    this.#isLarge = announced > SMALL_BODY_BYTES;
    this.#place = (this.#isLarge ? large : small).enter(caller);
  }

  /** The place for a body that has grown to this size, its last chunk not yet counted. */
  placeFor(size: number): BodyPlace {
    if (this.#isLarge || size <= SMALL_BODY_BYTES) return this.#place;
    this.#place.leave();
    this.#isLarge = true;
    this.#place = large.enter(this.#caller);
    const grown = this.#place;
    return { ...grown, take: () => grown.take(size) };
  }

  finish(): void {
    this.#place.finish();
  }

  leaveSmall(): void {
    if (!this.#isLarge) this.leave();
  }

  leave(): void {
    this.#place.leave();
    if (this.#isLarge) freeMemorySoon(() => large.bytes === 0);
  }
}

function refuseOtherTypes(request: Request): void {
  const isTyped = (request.get("content-type") ?? "").trim() !== "";
  // Null means that there is no body at all, which is no matter of its type.
  if (isTyped && request.is(["json", "+json"]) === false) {
    throw new ImgbatchError("UNSUPPORTED_MEDIA_TYPE");
  }
  const encoding = (request.get("content-encoding") ?? "").trim().toLowerCase();
  if (encoding !== "" && encoding !== "identity") {
    const message = "Content-Encoding: send the body as it is, not compressed.";
    throw new ImgbatchError("UNSUPPORTED_MEDIA_TYPE", message, { param: "Content-Encoding" });
  }
}

function mayContinue(request: Request, response: Response): void {
  if (request.get("expect")?.toLowerCase() !== "100-continue") return;
  response.locals.mayContinue = true;
  response.writeContinue();
}
