import type { Request, RequestHandler, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import {
  IDEMPOTENCY_REPLAYED_HEADER,
  IGNORED_HEADER,
  MAY_BE_PAID_TWICE_HEADER,
  UPSTREAM_COST_HEADER,
} from "../../contract/routes.ts";
import { needsOf } from "../../domain/checked-content.ts";
import { ignoredBy, isDrawing } from "../../domain/models.ts";
import type { Realtime } from "../../domain/realtime/realtime.ts";
import { microsToDecimal } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { consentingCaller, idempotencyKeyOf, type ScopedCaller } from "./authenticate.ts";
import { toServiceError } from "./errors.ts";
import { goneSignal } from "./exchange.ts";

/** Who asks for images in real time. */
interface RealtimeCall {
  caller: ScopedCaller;
  /** The idempotency key; null without one. */
  key: string | null;
  /** Aborts when the caller goes away before it has the whole answer. */
  gone: AbortSignal;
}

/**
 * Returns the handler of an operation that makes images in real time. `answer` answers a request. What it throws after its caller
 * has gone away is dropped: no response can reach that caller. Throws `REALTIME_INVALID_ARGUMENT` for a malformed header.
 */
export function realtimeHandler(
  answer: (request: Request, response: Response, call: RealtimeCall) => Promise<void>,
): RequestHandler {
  return async (request, response) => {
    const caller = consentingCaller(request, response, "REALTIME_INVALID_ARGUMENT");
    const key = idempotencyKeyOf(request, "REALTIME_INVALID_ARGUMENT");
    const gone = goneSignal(response, new ImgbatchError("REALTIME_CANCELLED", "The caller went away."));
    try {
      await answer(request, response, { caller, key, gone });
    } catch (error) {
      if (!gone.aborted) throw error;
    }
  };
}

/**
 * Returns the body of the answer to a real-time request, and sets the headers of its response: they name the fields without an
 * effect, and with an idempotency key they say whether the answer is that of an earlier request. `nameOf` returns the name that
 * the caller's API has for a field of its vendor. Default: the same name.
 */
export async function answerOnce(
  { realtime, realtimeOffers }: Pick<ApiDeps, "realtime" | "realtimeOffers">,
  response: Response,
  asked: Parameters<Realtime["answer"]>[0] & { nameOf?: (field: string) => string },
): Promise<Buffer> {
  const { nameOf = (field) => field, ...request } = asked;
  const { verbatim, partialImages, ignored = [] } = request.content;
  const first = realtimeOffers.first(request.model.id, needsOf([request.content]));
  const unread = first === null ? [] : ignoredBy(first.provider, verbatim);
  const hasPartials =
    first === null || isDrawing(first.provider) || first.provider.upstream?.takes.api === "openai";
  if (partialImages && !hasPartials) unread.push("partial_images");
  const names = [...ignored, ...unread.map(nameOf)];
  if (names.length > 0) response.setHeader(IGNORED_HEADER, headerList(names));
  const answer = await realtime.answer(request);
  if (!response.headersSent) {
    if (request.key !== null) response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, String(answer.isReplay));
    if (answer.paidRuns > 1) response.setHeader(MAY_BE_PAID_TWICE_HEADER, "true");
    if (answer.upstreamMicroUsd !== undefined)
      response.setHeader(UPSTREAM_COST_HEADER, microsToDecimal(answer.upstreamMicroUsd));
  }
  if ("error" in answer) throw answer.error;
  return answer.body;
}

const MOST_LISTED = 20;

/** A list of names as the value of a header. A name with other characters than ASCII letters and signs is shortened to these. */
function headerList(names: readonly string[]): string {
  const more = names.length > MOST_LISTED ? ["…"] : [];
  const shown = names.slice(0, MOST_LISTED).map((name) => name.slice(0, 100));
  return [...shown, ...more].join(", ").replace(/[^\x20-\x7e]/g, "?");
}

/**
 * A stream without a result sends a sign of life after this time, and then every so often: proxies close a connection on which
 * nothing has come for a minute, some sooner.
 */
const [FIRST_SIGN_MS, NEXT_SIGN_MS] = [10_000, 15_000];

/** When a stream whose first events say that the work has begun sends them. */
export const EARLY_SIGN_MS = 1000;

/** The texts of which a stream consists. */
export interface Framing {
  type: string;
  /** When the first sign of life comes. Left out: after ten seconds. */
  firstSignMs?: number;
  /** A sign of life. `isFirst`: nothing was sent before. */
  sign(isFirst: boolean): string;
  /** `body`: what the work has made. `isFirst`: no sign was sent. */
  result(body: Buffer, isFirst: boolean): string;
  /** Comes behind a sign. */
  failure(error: ImgbatchError): string;
  end: string;
}

/**
 * Sends the result of the work as a stream. A failure before the first sign of life is an ordinary error response; a later
 * one is the last part of the stream.
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
  const isLate = (ms: number) =>
    deps.clock.sleep(ms, settled.signal).then(
      () => !settled.signal.aborted,
      () => false,
    );
  const send = (text: string) => {
    // The work may go on after its caller has left.
    if (response.destroyed) return;
    if (!response.headersSent) {
      response.status(200).setHeader("Content-Type", framing.type);
      response.setHeader("Cache-Control", "no-cache");
      // Proxies such as nginx would keep the signs of life until the end.
      response.setHeader("X-Accel-Buffering", "no");
    }
    response.write(text);
  };
  for (
    let ms = framing.firstSignMs ?? FIRST_SIGN_MS;
    !response.destroyed && (await isLate(ms));
    ms = NEXT_SIGN_MS
  )
    send(framing.sign(!response.headersSent));
  try {
    const body = await outcome;
    send(framing.result(body, !response.headersSent));
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
