const BATCHES = "/v1/images/batches";
/** Half a character has no encoding. */
const part = (text: string) => encodeURIComponent(text.toWellFormed());

const NATIVE_MODELS = "/v1beta/models";

/** The paths of both APIs, relative to the base URL. */
export const routes = {
  batchModels: `${BATCHES}/models`,
  batches: BATCHES,
  batch: (id: string) => `${BATCHES}/${part(id)}`,
  items: (id: string) => `${BATCHES}/${part(id)}/items`,
  content: (id: string, customId: string) => `${BATCHES}/${part(id)}/items/${part(customId)}/content`,
  cancel: (id: string) => `${BATCHES}/${part(id)}/cancel`,
  outputs: (id: string) => `${BATCHES}/${part(id)}/outputs`,
  download: (id: string) => `${BATCHES}/${part(id)}/download`,
  nativeModels: NATIVE_MODELS,
  nativeModel: (model: string) => `${NATIVE_MODELS}/${part(model)}`,
  generateContent: (model: string) => `${NATIVE_MODELS}/${part(model)}:generateContent`,
  /** Its answer is a stream of events. */
  streamGenerateContent: (model: string) => `${NATIVE_MODELS}/${part(model)}:streamGenerateContent?alt=sse`,
  sharedModels: "/v1/models",
  ready: "/readyz",
  health: "/healthz",
};

/** Carried by every answer, and taken from a request when it is well formed. */
export const REQUEST_ID_HEADER = "x-request-id";
export const IDEMPOTENCY_KEY_HEADER = "idempotency-key";
/** Set to `true` when a create request was answered with an earlier batch. */
export const IDEMPOTENCY_REPLAYED_HEADER = "idempotency-replayed";
