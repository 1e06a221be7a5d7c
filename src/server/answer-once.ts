import type { Response } from "express";
import { IDEMPOTENCY_REPLAYED_HEADER, MAY_BE_PAID_TWICE_HEADER } from "../contract/routes.ts";
import { outcomeOf, type Render, type RunOutcome } from "../domain/realtime/keyed-run.ts";
import { NOT_RECORDED, type RequestRecord } from "../domain/realtime/request-record.ts";
import type { ApiDeps } from "./deps.ts";

/** A real-time request that has passed every check. */
export interface CheckedRequest<T> {
  apiKeyId: string;
  /** Null: the request ends when its caller leaves, and is not repeated. */
  idempotencyKey: string | null;
  /** See `KeyedRequest.fingerprint`. */
  fingerprint(): string;
  /** `leaving`: ends the work when it aborts; null: nothing does. */
  make(leaving: AbortSignal | null, record: RequestRecord<T>): Promise<T>;
  render: Render<T>;
}

/**
 * Returns the body of the answer: with an idempotency key that of the first request with this key, and the response says
 * whether it is an earlier one. The body is made before anything is paid for.
 */
export async function answerOnce<T>(
  { keyedRequests }: Pick<ApiDeps, "keyedRequests">,
  response: Response,
  gone: AbortSignal,
  { apiKeyId, idempotencyKey, fingerprint, make, render }: CheckedRequest<T>,
): Promise<Buffer> {
  if (idempotencyKey === null) {
    const kept: RunOutcome[] = [];
    const keep = async (made: T) => {
      kept.push(await outcomeOf(render, made));
    };
    await make(gone, { ...NOT_RECORDED, keep });
    return bodyOf(kept[0]);
  }
  const request = { apiKeyId, key: idempotencyKey, fingerprint: fingerprint() };
  const answer = await keyedRequests.answer<T>(request, gone, {
    make: (record) => make(null, record),
    render,
  });
  if (!response.headersSent) {
    response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, String(answer.isReplay));
    if (answer.paidRuns > 1) response.setHeader(MAY_BE_PAID_TWICE_HEADER, "true");
  }
  return bodyOf(answer);
}

function bodyOf(outcome: RunOutcome | undefined): Buffer {
  if (outcome === undefined) throw new Error("the work has ended without an answer");
  if ("error" in outcome) throw outcome.error;
  return outcome.body;
}
