import type { ItemErrorCode } from "../../../contract/item-errors.ts";
import { type ImageRequest, ProviderError } from "../../../domain/ports/image-provider.ts";
import { createRandom, hashSeed } from "../random.ts";
import type { Directives } from "./directives.ts";

/** Delays and failures for every request, to test how a program handles them. */
export interface Simulation {
  latencyMs: number;
  /** The share of requests that fail, 0 to 1. */
  fail: number;
  /** Decides, with the prompt, the output index and the origin, which requests fail. */
  seed: number;
}

/** Returns the failure that a directive asks for, or null. The failure carries `modelVersion`, as an image would. */
export function directedFailure(
  directives: Directives,
  request: ImageRequest,
  modelVersion: string,
): ProviderError | null {
  const { retryAfterMs } = directives;
  if (directives.refuse) {
    const message = "the prompt was refused, as its directive asks";
    return new ProviderError("SAFETY_BLOCKED", message, { modelVersion });
  }
  if (directives.status !== null) return statusFailure(directives.status, retryAfterMs);
  const code = directives.fail ?? (request.origin === "batch" ? directives.failOnce : null);
  if (code === null) return null;
  return new ProviderError(code, `failed with ${code}, as the directive in the prompt asks`, {
    retryAfterMs,
    modelVersion,
  });
}

function statusFailure(status: number, retryAfterMs: number | null): ProviderError {
  const code = statusCode(status);
  return new ProviderError(code, `answered HTTP ${status}, as the directive in the prompt asks`, {
    retryable: code === "PROVIDER_RATE_LIMITED" || code === "PROVIDER_TIMEOUT" || status >= 500,
    retryAfterMs,
    upstreamStatus: status,
  });
}

function statusCode(status: number): ItemErrorCode {
  if (status === 429) return "PROVIDER_RATE_LIMITED";
  if (status === 408 || status === 504) return "PROVIDER_TIMEOUT";
  return status >= 500 ? "PROVIDER_ITEM_FAILED" : "INVALID_ARGUMENT";
}

/**
 * Returns the failure that the simulation draws for an item, or null. The same items fail at every try and in every run. A
 * batch that retries them draws again.
 */
export function simulatedFailure(simulation: Simulation, request: ImageRequest): ProviderError | null {
  const { prompt, outputIndex, origin } = request;
  const random = createRandom(hashSeed(simulation.seed, prompt, outputIndex, origin === "batch" ? 0 : 1));
  if (!random.chance(simulation.fail)) return null;
  return new ProviderError("PROVIDER_ITEM_FAILED", "a simulated failure", { retryable: false });
}
