import type { Request } from "express";
import { ImgbatchError, isErrorCode, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type OpenaiBody, openaiCode, openaiErrorBody, openaiSchemas } from "../../contract/openai-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { type ItemError, type ItemErrorCode, isTerminal } from "../../contract/statuses.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { dropOutputs } from "../../domain/batches/delete.ts";
import { hasItems } from "../../domain/batches/lifecycle.ts";
import type { Piece } from "../../domain/downloads/piece-stream.ts";
import type { JobOfLines, LineReader } from "../../domain/jobs/take-in.ts";
import { DRAWINGS, MAX_INPUT_IMAGES } from "../../domain/models.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { Repositories, Transaction } from "../../domain/ports/stores.ts";
import type { BatchError, BatchRecord } from "../../domain/records.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { isObject } from "../../kernel/json.ts";
import type { ApiDeps } from "../deps.ts";
import { headerKey } from "../http/authenticate.ts";
import { invalidArgument, parseArgument, requireStorable } from "../http/errors.ts";
import { invalidQuery, listBody, readQuery } from "../http/parameters.ts";
import { jsonLines, type LineFormat, type LineRules, lineReader } from "../jobs/lines.ts";
import { hasResults, IMAGE_PLACE, type ItemResult, type JobProgress, withImages } from "../jobs/results.ts";
import {
  JOB_ERRORS,
  numberOf,
  type ResultFile,
  resultIdOf,
  usableFile,
  vendorJobs,
} from "../jobs/vendor-jobs.ts";
import { modelNamed } from "../native-api/models.ts";
import type { Operation, Surface } from "../operation.ts";
import { plainFormat, shapeOf } from "../request-body/json-reader.ts";
import { imageFacts, revisedPromptOf, usageView, usedOptions } from "./images.ts";
import { checkFields, EDIT_IMAGES, IMAGES_SHAPE, imagesFormat, readJson } from "./read-request.ts";

/** Whether OpenAI's library sends a request again, after an answer that it did not get or did not like. */
function isRepeated(request: Request): boolean {
  return Number(request.get("x-stainless-retry-count") ?? 0) > 0;
}

const STATES: Record<JobProgress["status"], OpenaiBody<"OpenaiBatch">["status"]> = {
  queued: "in_progress",
  running: "in_progress",
  processing_results: "finalizing",
  settling: "finalizing",
  completed: "completed",
  failed: "failed",
  cancelled: "cancelled",
  expired: "expired",
};

/** A batch as OpenAI's API shows it. */
function batchView(batch: BatchRecord, { status, error }: JobProgress): OpenaiBody<"OpenaiBatch"> {
  const {
    cancelAskedAtMs,
    createdAtMs,
    inputReadAtMs,
    endedAtMs,
    input,
    itemCount,
    successCount,
    failCount,
  } = batch;
  const isCancelling = cancelAskedAtMs !== null && endedAtMs === null;
  const begun = isCancelling ? "cancelling" : STATES[status];
  const state = status === "queued" && !hasItems(batch) && !isCancelling ? "validating" : begun;
  const endedAs = (wanted: OpenaiBody<"OpenaiBatch">["status"]) =>
    state === wanted ? toSeconds(endedAtMs) : null;
  return {
    id: `batch_${numberOf(batch)}`,
    object: "batch",
    endpoint: originOf(batch)?.endpoint ?? "",
    model: batch.model,
    errors: state === "failed" ? errorsOf(error) : null,
    input_file_id: input?.fileName ?? "",
    completion_window: "24h",
    status: state,
    output_file_id: resultIdOf(outputs, batch),
    error_file_id: resultIdOf(errors, batch),
    created_at: toSeconds(createdAtMs),
    in_progress_at: toSeconds(inputReadAtMs),
    expires_at: null,
    finalizing_at: endedAs("completed"),
    completed_at: endedAs("completed"),
    failed_at: endedAs("failed"),
    expired_at: endedAs("expired"),
    cancelling_at: isCancelling ? toSeconds(cancelAskedAtMs) : endedAs("cancelled"),
    cancelled_at: endedAs("cancelled"),
    request_counts: { total: itemCount, completed: successCount, failed: failCount },
    metadata: batch.metadata,
  };
}

function errorsOf(error: BatchError | null): OpenaiBody<"OpenaiBatch">["errors"] {
  const given = error?.code ?? "";
  const code = isErrorCode(given) ? openaiCode(given) : given;
  const message = error?.message ?? "The batch failed.";
  return { object: "list", data: [{ code, message, param: null, line: null }] };
}

const outputs: ResultFile = {
  prefix: "output-",
  exists: (batch) => hasResults(batch) && batch.successCount > 0,
  line: (batch, result) => (result.item.error === null ? resultLine(batch, result) : null),
};

/** Errors need no image: they outlast the images. */
const errors: ResultFile = {
  prefix: "errors-",
  exists: (batch) => isTerminal(batch.status) && batch.failCount > 0 && !originOf(batch)?.areErrorsDeleted,
  line: (batch, result) => (result.item.error === null ? null : resultLine(batch, result)),
};

const FORMAT = plainFormat(shapeOf(openaiSchemas.CreateOpenaiBatch), "REALTIME_INVALID_ARGUMENT");
const { jobPageDefault, jobPageMax } = FIXED_LIMITS;

const jobs = vendorJobs({
  source: "openai",
  prefix: "batch_",
  view: batchView,
  showsCancelled: true,
  readPage: async (deps, request, find) => {
    const limit = Math.min(readQuery(request, "OpenaiLimit") ?? jobPageDefault, jobPageMax);
    const id = readQuery(request, "OpenaiAfter");
    const last = id === undefined ? undefined : await find(id);
    if (last === null) throw invalidQuery("after", "must be the id of a batch of this list");
    const after = last && (await deps.stores.read.batches.placeOf(last.id));
    return { limit, filter: { ...(after && { after }) }, body: listBody };
  },
  results: [outputs, errors],
  readerOf: (deps, request) => ({
    format: FORMAT,
    images: null,
    read: (caller, { value }) => {
      const asked = parseArgument(openaiSchemas.CreateOpenaiBatch, value);
      requireStorable(
        "metadata",
        Object.entries(asked.metadata ?? {})
          .flat()
          .join(""),
      );
      return readBatch(deps, caller, asked, isRepeated(request));
    },
  }),
});

export const { resultFile } = jobs;

/** Deletes the images, or the errors, of a batch. Returns whether the id of a file stands for some. */
export async function removeResult(deps: ApiDeps, keyId: string, fileId: string): Promise<boolean> {
  const found = await jobs.findResult(deps, keyId, fileId);
  if (found === null) return false;
  const { file, batch } = found;
  const { id, input } = batch;
  if (file === outputs) await dropOutputs(deps, id, deps.clock.nowMs());
  else if (input !== null) {
    const origin = { ...input.origin, areErrorsDeleted: true };
    await deps.stores.write((tx) => tx.batches.update(id, { input: { ...input, origin } }));
  }
  return true;
}

/** The library asks three times at most, and waits ten minutes for each answer. */
const REPEATED_WITHIN_MS = 35 * 60_000;

/** The `requestHash` of a row: whether the library repeated the request. The key of the row is the hash. */
const [FIRST, REPEAT] = ["first", "repeat"];

/**
 * Reads a request for a batch. OpenAI's library sends no idempotency key: when it says that it repeats a request, and an
 * equal one has made a batch, the response is that batch, whichever of the two comes to its end first.
 */
async function readBatch(
  deps: ApiDeps,
  caller: Caller,
  asked: OpenaiBody<"CreateOpenaiBatch">,
  isRepeat: boolean,
) {
  const { read } = deps.stores;
  const { id: apiKeyId } = caller.key;
  const key = `${PATHS.openaiBatches} ${sha256Hex(JSON.stringify(asked))}`;
  const fromMs = deps.clock.nowMs() - REPEATED_WITHIN_MS;
  type FindBatch = (id: string) => Promise<BatchRecord | null>;
  const findEqual = async ({ idempotency }: Pick<Repositories, "idempotency">, find: FindBatch) => {
    const row = await idempotency.find(apiKeyId, key);
    const batch = row !== null && row.createdAtMs >= fromMs ? await find(row.batchId) : null;
    return row && batch?.recordDeletedAtMs === null ? { batch, kind: row.requestHash } : null;
  };
  const before = await findEqual(read, read.batches.byId);
  if (isRepeat && before !== null) return { repeated: before.batch };
  const { input_file_id: fileId, endpoint, metadata = null, output_expires_after: expiry } = asked;
  const file = await usableFile(deps, apiKeyId, fileId, "input_file_id");
  const modelName = await firstModelName(deps, file.blobKey);
  const origin: JobOrigin = { endpoint, modelName };
  return {
    model: modelNamed(deps, caller.group, modelName, "batch"),
    name: null,
    metadata,
    facts: { origin, ...(expiry && { resultsKeptMs: expiry.seconds * 1000 }) },
    findMade: async (tx: Transaction) => {
      const made = await findEqual(tx, tx.batches.locked);
      // Only a repeat can have overtaken a first request. Another first request wants a batch of its own.
      const isOvertaken = made?.kind === REPEAT && made.batch.id !== before?.batch.id;
      return made && (isRepeat || isOvertaken) ? made.batch : null;
    },
    onMade: (tx: Transaction, { id: batchId, createdAtMs }: BatchRecord) =>
      tx.idempotency.replace({ apiKeyId, key, requestHash: isRepeat ? REPEAT : FIRST, batchId, createdAtMs }),
    input: { fileName: file.id, blobKey: file.blobKey },
  };
}

const oneBatch = {
  parameters: ["OpenaiBatchId"] as const,
  answers: { 200: { description: "The batch.", schema: "OpenaiBatch" } },
};

/** The operations on batches. */
const batchOperations: readonly Operation[] = [
  {
    ...jobs.create,
    id: "createOpenaiBatch",
    path: PATHS.openaiBatches,
    summary: "Make many images as a batch, from a file of requests, for OpenAI clients",
    parameters: ["RetryCount", "MaxCost"],
    body: "CreateOpenaiBatch",
    answers: {
      200: { description: "The batch. Its lines are read and paid for later.", schema: "OpenaiBatch" },
    },
  },
  {
    ...jobs.list,
    id: "listOpenaiBatches",
    path: PATHS.openaiBatches,
    summary: "The batches that this key made with this API, newest first",
    parameters: ["OpenaiLimit", "OpenaiAfter"],
    answers: { 200: { description: "A page of batches.", schema: "OpenaiBatchList" } },
    errors: [...JOB_ERRORS, "BATCH_IMAGE_INVALID_QUERY"],
  },
  {
    ...jobs.get,
    ...oneBatch,
    id: "getOpenaiBatch",
    path: PATHS.openaiBatch,
    summary: "A batch as it is now",
  },
  {
    ...jobs.cancel,
    ...oneBatch,
    id: "cancelOpenaiBatch",
    path: PATHS.openaiBatchCancel,
    summary: "Stop a batch. What was made stays, and is paid for",
  },
];

/** Nothing else of the line is kept. */
const MODEL_FORMAT = plainFormat({ body: { model: "any" } }, "REALTIME_INVALID_ARGUMENT");

/**
 * Returns the model that the first readable line of an input names, as it writes it; null when it names none. Reads no
 * more than the most bytes that one line can have.
 */
async function firstModelName(
  { blobs, limits }: Pick<ApiDeps, "blobs" | "limits">,
  blobKey: string,
): Promise<string | null> {
  const maxBytes = limits.realtimeBodyBytes;
  const bytes = await (blobs as BlobStore).open(blobKey, { start: 0, end: maxBytes - 1 });
  if (bytes === null) return null;
  try {
    for await (const line of jsonLines({ format: MODEL_FORMAT, images: null, maxBytes }, bytes)) {
      if ("problem" in line) continue;
      const { body }: { body?: { model?: unknown } | null } = line.value;
      return typeof body?.model === "string" && body.model !== "" ? body.model : null;
    }
    return null;
  } finally {
    bytes.destroy();
  }
}

/** A line as it was sent. */
interface SentLine {
  custom_id?: unknown;
  method?: unknown;
  url?: unknown;
  body?: unknown;
}

const LINE_SHAPE = { custom_id: "any", method: "any", url: "any", body: IMAGES_SHAPE } as const;

/**
 * Returns the reader of OpenAI's batches: a JSON object a line, with a `body` as the images API takes it as JSON, and a
 * `custom_id` that no other line has. A line asks for one image, of the model of its batch.
 */
export function openaiLines(rules: LineRules): LineReader {
  const format = imagesFormat(rules.limits, LINE_SHAPE);
  return lineReader(rules, { format, images: EDIT_IMAGES }, (job) => formatOf(rules, job));
}

/** The facts of a request for a batch that its record keeps. */
type JobOrigin = {
  endpoint: string;
  /** The model that all its lines must name, as they write it; null when they name none. */
  modelName: string | null;
  /** Whether the file with its errors was deleted. */
  areErrorsDeleted?: boolean;
};

function originOf({ input }: Pick<BatchRecord, "input">): JobOrigin | undefined {
  return input?.origin as JobOrigin | undefined;
}

function formatOf(rules: LineRules, job: JobOfLines): LineFormat {
  const { endpoint = "", modelName = null } = originOf(job) ?? {};
  const known = new Set<string>();
  return {
    keyOf: ({ custom_id: id }: SentLine) => (typeof id === "string" ? id : undefined),
    check: async (line: SentLine, { model, options: facts, sent, findFileImage }) => {
      checkEnvelope(line, endpoint, known);
      if (!isObject(line.body)) throw invalidArgument("body", "must be an object");
      const request = await readJson(line.body, endpoint === PATHS.imageEdits, sent, findFileImage);
      const named = request.fields.model ?? null;
      if (named !== modelName) {
        throw invalidArgument(
          "body.model",
          `must be the same in all lines: ${modelName ?? "absent"}, as in the first one`,
        );
      }
      const asked = await checkFields(rules, { model, imageLimit: MAX_INPUT_IMAGES, facts }, request);
      const { content, count, isByUrl, isStream } = asked;
      if (count !== 1) throw invalidArgument("body.n", "must be 1 in a batch: write a line for each image");
      if (isStream) throw invalidArgument("body.stream", "must not be true in a batch");
      if (isByUrl) throw invalidArgument("body.response_format", "must be b64_json in a batch");
      return content;
    },
  };
}

/** Checks all but the body. `known` has the names of the lines before, and gets this one's. */
function checkEnvelope({ custom_id: id, method, url }: SentLine, endpoint: string, known: Set<string>): void {
  if (typeof id !== "string" || id === "") throw invalidArgument("custom_id", "is required: a text");
  if (known.has(id)) throw invalidArgument("custom_id", "must differ from those of the lines before");
  known.add(id);
  if (method !== "POST") throw invalidArgument("method", "must be POST");
  if (url !== endpoint) throw invalidArgument("url", `must be the endpoint of the batch, ${endpoint}`);
}

/** Item errors with the status and the code that the request would have failed with in real time. */
const CODES: Partial<Record<ItemErrorCode, ServiceErrorCode>> = {
  SAFETY_BLOCKED: "REALTIME_REFUSED",
  EMPTY_IMAGE_OUTPUT: "REALTIME_NO_IMAGE",
  INVALID_ARGUMENT: "REALTIME_INVALID_ARGUMENT",
  PROVIDER_RATE_LIMITED: "REALTIME_PROVIDER_LIMITED",
  PROVIDER_TIMEOUT: "REALTIME_TIMEOUT",
};

/** An ended item as a line of the file that it belongs to: a response, or why the request was not run. */
function resultLine(batch: BatchRecord, result: ItemResult): Piece[] {
  const { item, outputs } = result;
  const name = numberOf(batch);
  const id = `batch_req_${name}_${item.position + 1}`;
  const custom_id = item.clientKey === null ? null : JSON.parse(item.clientKey);
  if (item.error?.code === "CANCELLED") {
    const error = { code: "batch_cancelled", message: item.error.message };
    return [JSON.stringify({ id, custom_id, response: null, error })];
  }
  const failure = item.error && errorOf(item.error);
  const status_code = failure?.httpStatus ?? 200;
  const body = failure ? openaiErrorBody(failure) : bodyOf(batch, result);
  const response = { status_code, request_id: `${name}-${item.position + 1}`, body };
  const line = JSON.stringify({ id, custom_id, response, error: null });
  return failure ? [line] : withImages(line, outputs.slice(0, 1));
}

/** Only the first image counts: a request of a batch asks for one. */
function bodyOf(
  batch: BatchRecord,
  { item, outputs: [output], inputImages }: ItemResult,
): OpenaiBody<"Images"> {
  if (output === undefined) throw new Error(`the image of ${batch.id}/${item.customId} is not recorded`);
  const { prompt, modelVersion, finishedAtMs, answer } = item;
  const model = modelVersion ?? batch.model;
  const drawn = { model, prompt, size: item.options.size, inputImages, outputImages: 1 };
  const isDrawn = batch.upstream === DRAWINGS;
  const usage = usageView(answer, item.usage, isDrawn ? drawn : null);
  const revised = revisedPromptOf(answer);
  return {
    created: Math.floor((finishedAtMs ?? batch.createdAtMs) / 1000),
    data: [{ b64_json: IMAGE_PLACE, ...(revised !== null && { revised_prompt: revised }) }],
    ...imageFacts(output, output.mimeType, usedOptions(item.options, undefined, isDrawn)),
    ...(usage && { usage }),
  };
}

/** The parameter of a line that could not be read stands before its problem. */
function errorOf({ code, message }: ItemError): ImgbatchError {
  const param = code === "INVALID_ARGUMENT" ? /^(?:line \d+: )?([\w[\].]+): /.exec(message)?.[1] : undefined;
  return new ImgbatchError(CODES[code] ?? "REALTIME_PROVIDER_FAILED", message, { param });
}

/** Batches for OpenAI clients. */
export const openaiBatches: Surface = {
  tag: "batches",
  vendor: "openai",
  prefix: PATHS.openaiBatches,
  operations: batchOperations,
  credential: headerKey,
};
