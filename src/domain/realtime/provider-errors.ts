import { type ErrorDetails, ImgbatchError } from "../../contract/errors.ts";
import { WAITING_CODE_OF } from "../health/waiting.ts";
import type { ProviderError } from "../ports/image-provider.ts";

/** How long to wait when an upstream takes no more and does not say for how long. */
const LIMITED_RETRY_MS = 5000;

/**
 * Returns the error of the real-time API for a failure of a provider. A refused prompt and a result without an image
 * are no errors and do not come here.
 */
export function realtimeError(error: ProviderError): ImgbatchError {
  const { message, retryAfterMs, trouble } = error;
  const because = trouble === null || trouble === "ambiguous" ? undefined : WAITING_CODE_OF[trouble];
  const details: ErrorDetails = { cause: error, retryAfterMs: retryAfterMs ?? undefined, because };
  switch (error.code) {
    case "INVALID_ARGUMENT":
      return refusal(error, details);
    case "PROVIDER_RATE_LIMITED":
      return new ImgbatchError("REALTIME_PROVIDER_LIMITED", message, {
        ...details,
        retryAfterMs: retryAfterMs ?? LIMITED_RETRY_MS,
      });
    case "PROVIDER_TIMEOUT":
      return new ImgbatchError("REALTIME_TIMEOUT", message, details);
    case "INVALID_IMAGE_OUTPUT":
      return new ImgbatchError("REALTIME_PROVIDER_FAILED", message, details);
    case "CANCELLED":
      return new ImgbatchError("REALTIME_CANCELLED", message, details);
    default:
      return failure(error, details);
  }
}

/** When an upstream refuses our own key or model, the caller is not at fault. */
function refusal({ upstreamStatus, message }: ProviderError, details: ErrorDetails): ImgbatchError {
  if (upstreamStatus !== null && ![400, 413, 415, 422].includes(upstreamStatus)) {
    return new ImgbatchError("REALTIME_PROVIDER_UNREACHABLE", message, details);
  }
  return new ImgbatchError("REALTIME_INVALID_ARGUMENT", `contents: ${message}`, {
    ...details,
    param: "contents",
  });
}

function failure(
  { upstreamStatus, message, retryable }: ProviderError,
  details: ErrorDetails,
): ImgbatchError {
  if (upstreamStatus === 503) return new ImgbatchError("REALTIME_PROVIDER_OVERLOADED", message, details);
  if (upstreamStatus !== 500 && (upstreamStatus !== null || retryable)) {
    return new ImgbatchError("REALTIME_PROVIDER_UNREACHABLE", message, details);
  }
  return new ImgbatchError("REALTIME_PROVIDER_FAILED", message, details);
}
