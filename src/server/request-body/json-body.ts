import type { IncomingMessage } from "node:http";
import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { type FindFileImage, fileImagesOf } from "../../domain/files/uploads.ts";
import { formatBytes } from "../../kernel/text.ts";
import { type TransferRate, watchTransfer } from "../../kernel/transfer-rate.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../http/authenticate.ts";
import { type BodyBudgets, BodyReservation } from "./body-budgets.ts";
import { ImageExtraction, type ImageTexts, type TakenBody } from "./image-extraction.ts";
import type { BodyFormat } from "./json-reader.ts";

/** `waitMs`: how long a body waits for memory before its request is refused with `RATE_LIMITED`. */
interface BodyRate extends TransferRate {
  waitMs: number;
}

/** At least 8 KiB/s at any time; the deadline suffices for 192 MiB over 2 Mbit/s. */
export const BODY_RATE: BodyRate = {
  windowMs: 20_000,
  deadlineMs: 15 * 60_000,
  waitMs: 30_000,
};

/** The chunks of bodies that `peekBody` has read, for the handlers that read them next. */
const peeked = new WeakMap<IncomingMessage, Buffer[]>();

/**
 * Reads a body to its end and passes its chunks to `add`. While a promise of `add` is pending, nothing is read, so the
 * sender has to wait. Throws `REQUEST_TOO_LARGE`, `REQUEST_TIMEOUT` for a sender that is too slow, and the errors of
 * `add`.
 */
async function readBody(
  request: IncomingMessage,
  options: { maxBytes: number; rate: TransferRate; add(chunk: Buffer): Promise<void> | null },
): Promise<void> {
  let size = 0;
  const add = (chunk: Buffer) => {
    size += chunk.length;
    return size > options.maxBytes ? Promise.reject(tooLarge(options.maxBytes)) : options.add(chunk);
  };
  const chunks = peeked.get(request) ?? [];
  peeked.delete(request);
  for (const chunk of chunks) await add(chunk);
  await readRest(request, options.rate, add);
}

function readRest(
  request: IncomingMessage,
  rate: TransferRate,
  add: (chunk: Buffer) => Promise<void> | null,
): Promise<void> {
  if (request.readableEnded) return Promise.resolve();
  if (request.destroyed) return Promise.reject(new Error("the request ended early"));
  return new Promise((resolve, reject) => {
    let isOver = false;
    let working: Promise<void> | null = null;
    const end = (settle: () => void) => {
      isOver = true;
      watch.stop();
      request.off("data", onData);
      request.off("end", onEnd);
      request.off("error", onBroken);
      request.off("close", onBroken);
      settle();
    };
    const fail = (error: unknown) => {
      if (!isOver) end(() => reject(error));
    };
    const onData = (chunk: Buffer) => {
      watch.moved(chunk.length);
      working = add(chunk);
      if (working !== null) waitFor(working);
    };
    const waitFor = (work: Promise<void>) => {
      request.pause();
      watch.pause();
      work.then(() => {
        if (isOver) return;
        watch.resume();
        request.resume();
      }, fail);
    };
    const onEnd = () => end(() => resolve(working ?? undefined));
    const onBroken = (error?: Error) => fail(error ?? new Error("the request ended early"));
    const watch = watchTransfer(rate, () => fail(new ImgbatchError("REQUEST_TIMEOUT")));
    request.on("data", onData);
    request.on("end", onEnd);
    request.on("error", onBroken);
    request.on("close", onBroken);
    // `peekBody` pauses a request whose body is too long for it.
    request.resume();
  });
}

/**
 * Reads a body before its handler, which gets the same bytes again. Returns null for a body of more than `maxBytes`: its
 * handler reads the rest. Throws `REQUEST_TIMEOUT`.
 */
export async function peekBody(
  request: Request,
  response: Response,
  maxBytes: number,
): Promise<Buffer | null> {
  if (announcedLength(request) > maxBytes) return null;
  mayContinue(request, response);
  const chunks: Buffer[] = [];
  let size = 0;
  const enough = new Error("the body is longer");
  const add = (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    return size > maxBytes ? Promise.reject(enough) : null;
  };
  try {
    await readBody(request, { maxBytes: Number.POSITIVE_INFINITY, rate: BODY_RATE, add });
    return Buffer.concat(chunks);
  } catch (error) {
    if (error === enough) return null;
    throw error;
  } finally {
    peeked.set(request, chunks);
  }
}

function tooLarge(maxBytes: number): ImgbatchError {
  return new ImgbatchError("REQUEST_TOO_LARGE", `The request body is larger than ${formatBytes(maxBytes)}.`);
}

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

interface JsonBodyOptions {
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
  const announced = announcedLength(request);
  // A body that announces too many bytes is refused without reading it.
  if (announced > maxBytes) throw tooLarge(maxBytes);
  const reservation = new BodyReservation(bodyBudgets, announced, rate.waitMs);
  const extraction = new ImageExtraction(format, images, reservation);
  try {
    mayContinue(request, response);
    await readBody(request, { maxBytes, rate, add: (chunk) => extraction.add(chunk) });
    return await work(await extraction.end());
  } finally {
    await extraction.discard();
  }
}

/**
 * Reads the JSON body of a request that makes images in real time. `work` gets the body, and `findFile`, which finds the uploaded
 * files of the caller; their bytes stay until the work has ended. Throws the errors of `withJsonBody`.
 */
export function withRealtimeBody(
  deps: ApiDeps,
  request: Request,
  response: Response,
  { format, images }: { format: BodyFormat; images: Omit<ImageTexts, "blobs"> },
  work: (body: TakenBody & { findFile: FindFileImage }) => Promise<void>,
): Promise<void> {
  const { bodyBudgets, limits, blobs } = deps;
  const options = { bodyBudgets, maxBytes: limits.realtimeBodyBytes, format, images: { ...images, blobs } };
  return withJsonBody(request, response, options, async (body) => {
    const files = fileImagesOf(deps, callerOf(response).key.id);
    try {
      await work({ ...body, findFile: files.find });
    } finally {
      await files.release();
    }
  });
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
function refuseEncodings(request: Request): void {
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
function mayContinue(request: Request, response: Response): void {
  if (request.get("expect")?.toLowerCase() !== "100-continue" || response.locals.mayContinue) return;
  response.locals.mayContinue = true;
  response.writeContinue();
}
