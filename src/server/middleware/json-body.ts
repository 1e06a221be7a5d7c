import type { Request, Response } from "express";
import PQueue from "p-queue";
import { ImgbatchError } from "../../contract/errors.ts";
import { formatBytes } from "../../kernel/text.ts";
import { parseJson } from "../parse-json.ts";

/** Bodies above this size, or of a size that is not announced, are read a few at a time: they wait in memory. */
const LARGE_BODY_BYTES = 4 * 1024 * 1024;
const largeBodies = new PQueue({ concurrency: 2 });

/**
 * Reads the body of a request as JSON. Throws `UNSUPPORTED_MEDIA_TYPE`, `REQUEST_TOO_LARGE` or `INVALID_JSON`.
 * Rules: API-4, API-5, API-6.
 */
export async function readJsonBody(request: Request, response: Response, maxBytes: number): Promise<unknown> {
  const isTyped = (request.get("content-type") ?? "").trim() !== "";
  // Null means that there is no body at all, which is no matter of its type.
  if (isTyped && request.is(["json", "+json"]) === false) {
    throw new ImgbatchError("UNSUPPORTED_MEDIA_TYPE");
  }
  const isChunked = request.get("transfer-encoding") !== undefined;
  const announced = isChunked ? Number.POSITIVE_INFINITY : Number(request.get("content-length") ?? 0);
  // An announced excess is refused without reading, and without waiting for a place.
  if (!isChunked && announced > maxBytes) throw tooLarge(maxBytes);
  const read = async () => parseJson(await readBytes(request, response, maxBytes));
  return announced <= LARGE_BODY_BYTES ? read() : largeBodies.add(read);
}

async function readBytes(request: Request, response: Response, maxBytes: number): Promise<Buffer> {
  if (request.get("expect")?.toLowerCase() === "100-continue") {
    response.locals.mayContinue = true;
    response.writeContinue();
  }
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    size += chunk.length;
    if (size > maxBytes) throw tooLarge(maxBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function tooLarge(maxBytes: number): ImgbatchError {
  return new ImgbatchError("REQUEST_TOO_LARGE", `The request body is larger than ${formatBytes(maxBytes)}.`);
}
