import type { ItemErrorCode } from "../../contract/item-errors.ts";
import { type ImageRequest, ProviderError } from "../../domain/ports/image-provider.ts";
import type { Directives } from "./directives.ts";
import { createRandom, hashSeed } from "./random.ts";

/** Delays and failures applied to every request, for trying how a program copes. */
export interface Simulation {
  latencyMs: number;
  /** The share of requests that fail, 0 to 1. */
  fail: number;
  /** Decides, with the prompt, the index and the attempt, which requests fail. */
  seed: number;
}

/** The failure that the prompt asks for, or null. */
export function directedFailure(directives: Directives, request: ImageRequest): ProviderError | null {
  const { retryAfterMs } = directives;
  if (directives.refuse)
    return new ProviderError("SAFETY_BLOCKED", "the prompt was refused, as its directive asks");
  if (directives.status !== null) return statusFailure(directives.status, retryAfterMs);
  const code = directives.fail ?? (request.isRetryBatch ? null : directives.failOnce);
  if (code === null) return null;
  return new ProviderError(code, `failed with ${code}, as the directive in the prompt asks`, {
    retryAfterMs,
  });
}

function statusFailure(status: number, retryAfterMs: number | null): ProviderError {
  const code = statusCode(status);
  return new ProviderError(code, `answered HTTP ${status}, as the directive in the prompt asks`, {
    retryable: code === "PROVIDER_RATE_LIMITED" || code === "PROVIDER_TIMEOUT" || status >= 500,
    retryAfterMs,
  });
}

function statusCode(status: number): ItemErrorCode {
  if (status === 429) return "PROVIDER_RATE_LIMITED";
  if (status === 408 || status === 504) return "PROVIDER_TIMEOUT";
  return status >= 500 ? "PROVIDER_ITEM_FAILED" : "INVALID_ARGUMENT";
}

/**
 * The failure that the simulation draws for this request, or null. The same request and attempt: the same answer.
 * Rule: DRAW-14.
 */
export function simulatedFailure(simulation: Simulation, request: ImageRequest): ProviderError | null {
  const random = createRandom(
    hashSeed(simulation.seed, request.prompt, request.outputIndex, request.attempt),
  );
  if (!random.chance(simulation.fail)) return null;
  const code = random.pick<ItemErrorCode>([
    "PROVIDER_ITEM_FAILED",
    "PROVIDER_RATE_LIMITED",
    "PROVIDER_TIMEOUT",
  ]);
  return new ProviderError(code, `simulated failure of attempt ${request.attempt}`, { retryable: true });
}
