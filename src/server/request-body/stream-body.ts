import type { Request, Response } from "express";
import { BODY_RATE, readBody, tooLarge } from "./read-body.ts";
import { mayContinue, refuseEncodings } from "./with-json-body.ts";

/** Passes the bytes of a body to `add` while they come; its type does not matter. */
export async function streamBody(
  request: Request,
  response: Response,
  options: { maxBytes?: number; add(bytes: Buffer): Promise<void> | null },
): Promise<void> {
  const { maxBytes = Number.POSITIVE_INFINITY, add } = options;
  refuseEncodings(request);
  if (announcedLength(request) > maxBytes) throw tooLarge(maxBytes);
  mayContinue(request, response);
  await readBody(request, { maxBytes, rate: BODY_RATE, add });
}

/** The announced length of a body; 0 when it is unknown. */
export function announcedLength(request: Request): number {
  const isChunked = request.get("transfer-encoding") !== undefined;
  return isChunked ? 0 : Number(request.get("content-length") ?? 0);
}
