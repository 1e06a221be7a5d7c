import type { Response } from "express";
import type { ImgbatchError } from "../contract/errors.ts";
import type { ApiDeps } from "./deps.ts";
import { toServiceError } from "./middleware/errors.ts";

/** A stream without a result sends an opening after this time, so that the connection does not look dead. */
export const STREAM_OPENING_MS = 10_000;

/** The texts of which a stream consists. */
export interface Framing<T> {
  type: string;
  opening: string;
  /** `isFirst`: no opening was sent. */
  result(value: T, isFirst: boolean): string;
  /** Comes behind an opening. */
  failure(error: ImgbatchError): string;
  end: string;
}

/**
 * Sends the result of the work as a stream. A failure before the opening is an ordinary error response; a later one is the
 * last part of the stream.
 */
export async function answerStream<T>(
  deps: Pick<ApiDeps, "clock" | "log">,
  framing: Framing<T>,
  response: Response,
  work: Promise<T>,
): Promise<void> {
  const settled = new AbortController();
  const outcome = work.finally(() => settled.abort());
  outcome.catch(() => {});
  const isLate = await deps.clock.sleep(STREAM_OPENING_MS, settled.signal).then(
    () => true,
    () => false,
  );
  const begin = () => {
    response.status(200).setHeader("Content-Type", framing.type);
    response.setHeader("Cache-Control", "no-cache");
  };
  if (isLate) {
    begin();
    response.write(framing.opening);
  }
  try {
    const value = await outcome;
    if (!isLate) begin();
    response.write(framing.result(value, !isLate));
  } catch (error) {
    if (!isLate) throw error;
    response.write(framing.failure(toStreamError(deps, response, error)));
  }
  response.end(framing.end);
}

function toStreamError({ log }: Pick<ApiDeps, "log">, response: Response, thrown: unknown): ImgbatchError {
  const error = toServiceError(thrown);
  if (error.code === "INTERNAL_ERROR") {
    log.error("unexpected error", { request_id: response.locals.requestId, error: String(thrown) });
  }
  return error;
}
