import { ImgbatchError } from "../../contract/errors.ts";
import type { Transaction } from "../ports/stores.ts";

const WINDOW_MS = 60_000;
const BUSY_RETRY_MS = 1000;

/** The limits of a key in real time; 0 sets no limit. */
export interface RequestRate {
  requestsPerMinute: number;
  concurrentRequests: number;
}

function tooManyAtOnce(running: number, allowed: number): ImgbatchError {
  const message = `This key has ${running} requests running; ${allowed} are allowed at once.`;
  return new ImgbatchError("RATE_LIMITED", message, { retryAfterMs: BUSY_RETRY_MS });
}

/** `oldestMs`: when the first request of the last minute began. */
function tooManyInMinute(allowed: number, oldestMs: number, nowMs: number): ImgbatchError {
  const message = `This key may begin ${allowed} requests a minute.`;
  return new ImgbatchError("RATE_LIMITED", message, {
    retryAfterMs: Math.max(1, oldestMs + WINDOW_MS - nowMs),
  });
}

/**
 * Counts a request whose hold was just written among those of all processes, by whole seconds. Throws `RATE_LIMITED`, which undoes
 * both.
 */
export async function countRequest(
  tx: Transaction,
  apiKeyId: string,
  { requestsPerMinute, concurrentRequests }: RequestRate,
  nowMs: number,
): Promise<void> {
  if (requestsPerMinute === 0 && concurrentRequests === 0) return;
  await tx.lock("key", apiKeyId);
  if (concurrentRequests > 0) {
    const others = (await tx.realtimeHolds.countOpen(apiKeyId)) - 1;
    if (others >= concurrentRequests) throw tooManyAtOnce(others, concurrentRequests);
  }
  if (requestsPerMinute === 0) return;
  const second = Math.floor(nowMs / 1000);
  const oldestSecond = second + 1 - WINDOW_MS / 1000;
  const { count, firstSecond } = await tx.requestCounts.since(apiKeyId, oldestSecond);
  if (count >= requestsPerMinute)
    throw tooManyInMinute(requestsPerMinute, (firstSecond ?? second) * 1000, nowMs);
  await tx.requestCounts.add(apiKeyId, second, oldestSecond);
}
