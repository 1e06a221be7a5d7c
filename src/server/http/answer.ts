import type { Response } from "express";
import type { ImgbatchError } from "../../contract/errors.ts";
import { IDEMPOTENCY_REPLAYED_HEADER, MAY_BE_PAID_TWICE_HEADER } from "../../contract/routes.ts";
import type { Realtime } from "../../domain/realtime/realtime.ts";
import type { ApiDeps } from "../deps.ts";
import { toServiceError } from "./errors.ts";

/**
 * Returns the body of the answer to a real-time request. With an idempotency key, the response says whether it is that of an
 * earlier request.
 */
export async function answerOnce(
  { realtime }: Pick<ApiDeps, "realtime">,
  response: Response,
  request: Parameters<Realtime["answer"]>[0],
): Promise<Buffer> {
  const answer = await realtime.answer(request);
  if (request.once !== null && !response.headersSent) {
    response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, String(answer.isReplay));
    if (answer.paidRuns > 1) response.setHeader(MAY_BE_PAID_TWICE_HEADER, "true");
  }
  if ("error" in answer) throw answer.error;
  return answer.body;
}

/** A stream without a result sends an opening after this time, so that the connection does not look dead. */
const STREAM_OPENING_MS = 10_000;

/** The texts of which a stream consists. */
export interface Framing {
  type: string;
  opening: string;
  /** `body`: what the work has made. `isFirst`: no opening was sent. */
  result(body: Buffer, isFirst: boolean): string;
  /** Comes behind an opening. */
  failure(error: ImgbatchError): string;
  end: string;
}

/**
 * Sends the result of the work as a stream. A failure before the opening is an ordinary error response; a later one is the
 * last part of the stream.
 */
export async function answerStream(
  deps: Pick<ApiDeps, "clock" | "log">,
  framing: Framing,
  response: Response,
  work: Promise<Buffer>,
): Promise<void> {
  const settled = new AbortController();
  const outcome = work.finally(() => settled.abort());
  outcome.catch(() => {});
  const isLate = await deps.clock.sleep(STREAM_OPENING_MS, settled.signal).then(
    () => true,
    () => false,
  );
  const send = (text: string) => {
    // The work may go on after its caller has left.
    if (response.destroyed) return;
    if (!response.headersSent) {
      response.status(200).setHeader("Content-Type", framing.type);
      response.setHeader("Cache-Control", "no-cache");
    }
    response.write(text);
  };
  if (isLate) send(framing.opening);
  try {
    send(framing.result(await outcome, !isLate));
  } catch (error) {
    if (!response.headersSent) throw error;
    send(framing.failure(toStreamError(deps, response, error)));
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
