/** The paths of all operations, relative to the base URL. A variable part is written `{name}`. */
export const PATHS = {
  batches: "/v1/images/batches",
  batchModels: "/v1/images/batches/models",
  batch: "/v1/images/batches/{id}",
  items: "/v1/images/batches/{id}/items",
  content: "/v1/images/batches/{id}/items/{custom_id}/content",
  cancel: "/v1/images/batches/{id}/cancel",
  endJobs: "/v1/images/batches/{id}/end-jobs",
  goOn: "/v1/images/batches/{id}/go-on",
  outputs: "/v1/images/batches/{id}/outputs",
  download: "/v1/images/batches/{id}/download",
  retry: "/v1/images/batches/{id}/retry",
  ticket: "/v1/images/batches/{id}/ticket",
  thumbnail: "/v1/images/batches/{id}/items/{custom_id}/thumbnail",
  thumbnails: "/v1/images/batches/{id}/thumbnails",
  reference: "/v1/images/batches/{id}/items/{custom_id}/references/{index}",
  ticketDownload: "/v1/downloads/{id}",
  account: "/v1/account",
  usage: "/v1/usage",
  ledger: "/v1/ledger",
  events: "/v1/events",
  consoleCodes: "/v1/console/codes",
  consoleSessions: "/v1/console/sessions",
  consoleSession: "/v1/console/session",
  consoleService: "/v1/console/service",
  consolePause: "/v1/console/pause",
  consoleProviders: "/v1/console/providers",
  consoleResume: "/v1/console/providers/{provider}/resume",
  console: "/v1/console",
  imageGenerations: "/v1/images/generations",
  imageEdits: "/v1/images/edits",
  imageOutput: "/v1/images/outputs/{name}",
  responses: "/v1/responses",
  response: "/v1/responses/{id}",
  openaiFiles: "/v1/files",
  openaiFile: "/v1/files/{file}",
  openaiFileContent: "/v1/files/{file}/content",
  openaiBatches: "/v1/batches",
  openaiBatch: "/v1/batches/{id}",
  openaiBatchCancel: "/v1/batches/{id}/cancel",
  nativeModels: "/v1beta/models",
  nativeModel: "/v1beta/models/{model}",
  interactions: "/v1beta/interactions",
  interaction: "/v1beta/interactions/{id}",
  interactionCancel: "/v1beta/interactions/{id}/cancel",
  nativeJobs: "/v1beta/batches",
  nativeJob: "/v1beta/batches/{id}",
  files: "/v1beta/files",
  file: "/v1beta/files/{file}",
  fileDownload: "/v1beta/files/{file}:download",
  fileDownloadAlone: "/download/v1beta/files/{file}:download",
  uploads: "/upload/v1beta/files",
  sharedModels: "/v1/models",
  sharedModel: "/v1/models/{model}",
  testFaults: "/imgbatch/test/faults",
  testRequests: "/imgbatch/test/requests",
  ready: "/readyz",
  health: "/healthz",
  metrics: "/metrics",
  openApi: "/openapi.json",
} as const;

/** The operations of a model: the last part of the path, behind a colon. */
export const MODEL_VERBS = ["generateContent", "streamGenerateContent", "batchGenerateContent"] as const;
/** The operations of a file, behind a colon, too. */
export const FILE_VERBS = ["download"] as const;

/** The paths that a client calls, with the variable parts filled in. */
export const routes = {
  batchModels: PATHS.batchModels,
  batches: PATHS.batches,
  batch: (id: string) => fill(PATHS.batch, id),
  items: (id: string) => fill(PATHS.items, id),
  content: (id: string, customId: string) => fill(PATHS.content, id, customId),
  cancel: (id: string) => fill(PATHS.cancel, id),
  endJobs: (id: string) => fill(PATHS.endJobs, id),
  goOn: (id: string) => fill(PATHS.goOn, id),
  outputs: (id: string) => fill(PATHS.outputs, id),
  retry: (id: string) => fill(PATHS.retry, id),
  ticket: (id: string) => fill(PATHS.ticket, id),
  thumbnail: (id: string, customId: string) => fill(PATHS.thumbnail, id, customId),
  thumbnails: (id: string) => fill(PATHS.thumbnails, id),
  reference: (id: string, customId: string, index: number) =>
    fill(PATHS.reference, id, customId, String(index)),
  download: (id: string) => fill(PATHS.download, id),
  ticketDownload: (id: string) => fill(PATHS.ticketDownload, id),
  events: PATHS.events,
  consoleCodes: PATHS.consoleCodes,
  consoleService: PATHS.consoleService,
  consolePause: PATHS.consolePause,
  consoleProviders: PATHS.consoleProviders,
  consoleResume: (provider: string) => fill(PATHS.consoleResume, provider),
  imageOutput: (name: string) => fill(PATHS.imageOutput, name),
  nativeModels: PATHS.nativeModels,
  nativeModel: (model: string) => fill(PATHS.nativeModel, model),
  generateContent: (model: string) => `${fill(PATHS.nativeModel, model)}:generateContent`,
  /** The response is a stream of events. */
  streamGenerateContent: (model: string) => `${fill(PATHS.nativeModel, model)}:streamGenerateContent?alt=sse`,
  sharedModels: PATHS.sharedModels,
  ready: PATHS.ready,
  health: PATHS.health,
};

/** Puts the values, percent-encoded, into the variable parts of a path, in order. */
function fill(path: string, ...values: string[]): string {
  // Half of a surrogate pair has no UTF-8 encoding: `toWellFormed` replaces it.
  return path.replace(/\{\w+\}/g, () => encodeURIComponent((values.shift() ?? "").toWellFormed()));
}

/** Every response carries it. The service takes it from the request when it is well formed. */
export const REQUEST_ID_HEADER = "x-request-id";
export const IDEMPOTENCY_KEY_HEADER = "idempotency-key";
/**
 * The most that a request may cost, in US dollars, when the person at the service's machine pays for it: it counts for
 * the local key only.
 */
export const MAX_COST_HEADER = "x-imgbatch-max-cost";
/** `true` on a create request that only asks for the batch of its idempotency key, and makes none. */
export const FIND_ONLY_HEADER = "x-imgbatch-find-only";
/** `true` when a create request returned an earlier batch. */
export const IDEMPOTENCY_REPLAYED_HEADER = "idempotency-replayed";
/** `true` when an upstream may have been paid for an earlier run of the request, too. */
export const MAY_BE_PAID_TWICE_HEADER = "x-imgbatch-may-be-paid-twice";
/** US dollars: what upstreams billed for the images of a real-time answer, where they report it. */
export const UPSTREAM_COST_HEADER = "x-imgbatch-upstream-cost";
/** The fields of a request that have no effect on its image, separated by commas. */
export const IGNORED_HEADER = "x-imgbatch-ignored";
/** Keeps tests apart: a fault meets only requests with the same name, and the journal shows only those. */
export const TEST_HEADER = "x-imgbatch-test";
/** `true` on an answer that a fault has changed or taken the place of. */
export const FAULT_HEADER = "x-imgbatch-fault";
