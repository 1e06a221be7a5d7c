import type { Answer } from "./fake-upstream.ts";

/** The usual errors of the API; relays send the same. */
export const openaiErrors = {
  invalid: (message: string, param: string | null, code = "invalid_value") =>
    failure(400, { message, type: "invalid_request_error", param, code }),
  invalidKey: () => {
    const message = "Incorrect API key provided. You can find your API key in your account settings.";
    return failure(401, { message, type: "invalid_request_error", param: null, code: "invalid_api_key" });
  },
  noMoney: () => {
    const message = "You exceeded your current quota, please check your plan and billing details.";
    return failure(429, { message, type: "insufficient_quota", param: null, code: "insufficient_quota" });
  },
  paymentRequired: () =>
    failure(402, {
      message: "Insufficient credits. Add more to continue.",
      type: null,
      param: null,
      code: 402,
    }),
  limited: (headers: Record<string, string> = {}) => {
    const message = "Rate limit reached for images per minute: Limit 5, Used 5, Requested 1.";
    return failure(429, { message, type: "requests", param: null, code: "rate_limit_exceeded" }, headers);
  },
  refused: (categories = "violence") =>
    failure(400, {
      message: `Your request was rejected by the safety system. safety_violations=[${categories}].`,
      ...{ type: "image_generation_user_error", param: null, code: "moderation_blocked" },
    }),
  noModel: (model: string) =>
    failure(404, {
      message: `The model '${model}' does not exist or you do not have access to it.`,
      ...{ type: "invalid_request_error", param: null, code: "model_not_found" },
    }),
  forbidden: () => {
    const message = "Your organization must be verified to use this model.";
    return failure(403, { message, type: "invalid_request_error", param: null, code: null });
  },
  noPath: (path: string) => {
    const message = `Invalid URL (POST ${path})`;
    return failure(404, { message, type: "invalid_request_error", param: null, code: null });
  },
  server: (code = 500) => {
    const message = "The server had an error while processing your request.";
    return failure(code, { message, type: "server_error", param: null, code: null });
  },
  /** HTTP 200, as some relays send it. */
  inside200: (code: number, message: string) => json(200, { error: { code, message, metadata: {} } }),
};

/** Moderation that says nothing: no data, or data without an image. */
export const silentModeration = {
  empty: () => json(200, { created: 1_790_000_000, data: [] }),
  flagged: () => json(200, { data: [{ respect_moderation: false }] }),
};

function failure(status: number, error: object, headers: Record<string, string> = {}): Answer {
  const answer = json(status, { error });
  return { ...answer, headers: { ...answer.headers, ...headers } };
}

export function json(status: number, body: object): Answer {
  return { status, headers: { "x-request-id": "req_of_the_fake" }, body: JSON.stringify(body) };
}
