import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { parseJson } from "../parse-json.ts";

/** How much of a refused body is read and dropped, so that ordinary clients get to see the answer. */
const DISCARD_BYTES = 64 * 1024 * 1024;
const DISCARD_MS = 5000;

/**
 * Reads the body of a request as JSON. Throws `UNSUPPORTED_MEDIA_TYPE`, `REQUEST_TOO_LARGE` or `INVALID_JSON`.
 * Rules: API-4, API-5, API-6.
 */
export async function readJsonBody(request: Request, response: Response, maxBytes: number): Promise<unknown> {
  if (request.get("content-type") !== undefined && !request.is(["json", "+json"])) {
    throw new ImgbatchError("UNSUPPORTED_MEDIA_TYPE");
  }
  return parseJson(await readBytes(request, response, maxBytes));
}

async function readBytes(request: Request, response: Response, maxBytes: number): Promise<Buffer> {
  const announced = Number(request.get("content-length") ?? 0);
  if (announced > maxBytes) throw refuse(request, response, maxBytes);
  if (request.get("expect")?.toLowerCase() === "100-continue") response.writeContinue();
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    size += chunk.length;
    if (size > maxBytes) throw refuse(request, response, maxBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** A connection closed at once would lose the answer: the rest is read and dropped, up to a bound, then it closes. */
function refuse(request: Request, response: Response, maxBytes: number): ImgbatchError {
  response.setHeader("Connection", "close");
  let dropped = 0;
  const timer = setTimeout(() => request.destroy(), DISCARD_MS);
  request.on("data", (chunk: Buffer) => {
    dropped += chunk.length;
    if (dropped > DISCARD_BYTES) request.destroy();
  });
  request.on("close", () => clearTimeout(timer));
  request.on("end", () => clearTimeout(timer));
  request.on("error", () => {});
  const mib = Math.floor(maxBytes / 1024 / 1024);
  return new ImgbatchError("REQUEST_TOO_LARGE", `The request body is larger than ${mib} MiB.`);
}
