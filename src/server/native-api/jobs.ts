import { randomBytes } from "node:crypto";
import { errorEntry, ImgbatchError, isErrorCode, nativeStatus, RPC_CODES } from "../../contract/errors.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { type NativeBody, nativeSchemas } from "../../contract/native-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { type ItemErrorCode, isTerminal } from "../../contract/statuses.ts";
import { deleteRecord } from "../../domain/batches/delete.ts";
import { type Piece, pieceBytes, pieceStream } from "../../domain/downloads/piece-stream.ts";
import type { SentTexts } from "../../domain/images/sent-image.ts";
import type { LineText } from "../../domain/jobs/create-job.ts";
import type { LineReader } from "../../domain/jobs/take-in.ts";
import { DRAWINGS, MAX_INPUT_IMAGES } from "../../domain/models.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { fieldsOf, isObject } from "../../kernel/json.ts";
import { joinTurns, truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { sendBytes } from "../http/downloads.ts";
import { invalidArgument, parseArgument, requireStorable } from "../http/errors.ts";
import { pagingBy, readQuery } from "../http/parameters.ts";
import { type LineFormat, type LineRules, lineReader } from "../jobs/lines.ts";
import {
  hasResults,
  IMAGE_PLACE,
  type ItemResult,
  type JobProgress,
  progressOf,
  resultLines,
  withImages,
} from "../jobs/results.ts";
import {
  JOB_ERRORS,
  numberOf,
  type ResultFile,
  resultIdOf,
  usableFile,
  vendorJobs,
} from "../jobs/vendor-jobs.ts";
import type { Operation } from "../operation.ts";
import type { TakenBody } from "../request-body/image-extraction.ts";
import { type BodyFormat, shapeOf } from "../request-body/json-reader.ts";
import { camelKeys, checkContent } from "./check-content.ts";
import { CONTENT_SHAPE, contentBody, contentFormat, usageMetadataOf } from "./generate.ts";
import { findModel } from "./models.ts";

type Job = NativeBody<"Job">;
type JobOutput = NonNullable<Job["response"]>;

/** The request in a body: the lines of a file, or those that came with it. */
interface JobBody {
  name: string | null;
  input: { fileName: string } | { lines: Iterable<LineText> };
}

const INPUT = "batch.inputConfig";
const REQUESTS = `${INPUT}.requests.requests`;
/** The body, `batch` and `inputConfig`. Anything further inside belongs to the lines, and comes back as it was. */
const OWN_LEVELS = 3;

/** Checks the body of `:batchGenerateContent`. The requests themselves are checked later, each by itself. */
function checkJob({ value, sent }: TakenBody): JobBody {
  const given = camelKeys(value, OWN_LEVELS);
  refuseTooMany(given);
  const { displayName, inputConfig } = parseArgument(nativeSchemas.CreateJob, given).batch;
  const name = truncateCodePoints((displayName ?? "").trim(), FIXED_LIMITS.taskNameChars) || null;
  requireStorable("batch.displayName", name ?? "");
  const requests = inputConfig.requests?.requests;
  const fileName = inputConfig.fileName || null;
  if (fileName !== null && requests !== undefined) {
    throw invalidArgument(INPUT, "takes either fileName or requests, not both");
  }
  if (fileName !== null) return { name, input: { fileName } };
  if (requests === undefined)
    throw invalidArgument(INPUT, "needs the fileName of an uploaded file, or requests");
  if (requests.length === 0) throw invalidArgument(REQUESTS, "must not be empty");
  const mostChars = FIXED_LIMITS.lineKeyJsonChars;
  const long = requests.findIndex(
    ({ metadata }) => metadata != null && JSON.stringify(metadata).length > mostChars,
  );
  if (long >= 0)
    throw invalidArgument(`${REQUESTS}[${long}].metadata`, `has more than ${mostChars} characters as JSON`);
  return { name, input: { lines: linesOf(requests, sent) } };
}

/** Comes first: the schema would describe every wrong element of a long list. */
function refuseTooMany(body: unknown): void {
  const names = ["batch", "inputConfig", "requests", "requests"];
  const requests = names.reduce<unknown>((holder, name) => fieldsOf(holder)?.[name], body);
  const most = FIXED_LIMITS.inlineLines;
  if (!Array.isArray(requests) || requests.length <= most) return;
  const problem = `has ${requests.length} requests; at most ${most} can come inline. Upload a file with more`;
  throw invalidArgument(REQUESTS, problem);
}

type Requests = NonNullable<NativeBody<"CreateJob">["batch"]["inputConfig"]["requests"]>["requests"];

/** The lines as they came, with the images that were taken out. */
function* linesOf(requests: Requests, sent: SentTexts): Generator<LineText> {
  for (const { request, metadata } of requests) {
    const line = JSON.stringify({ key: metadata ?? undefined, request });
    yield line.split(/"([0-9a-f]{32}\.\d+)"/).flatMap((text, i) => {
      if (i % 2 === 0) return [text];
      const content = sent.get(text)?.content;
      // What is no Base64 can be any other text that is none.
      return content === undefined || typeof content === "string" ? [`"${text}"`] : ['"', content, '"'];
    });
  }
}

const TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch";
const OUTPUT_TYPE = `${TYPE}Output`;

const STATES: Record<JobProgress["status"], Job["metadata"]["state"]> = {
  queued: "BATCH_STATE_PENDING",
  running: "BATCH_STATE_RUNNING",
  processing_results: "BATCH_STATE_RUNNING",
  settling: "BATCH_STATE_RUNNING",
  completed: "BATCH_STATE_SUCCEEDED",
  failed: "BATCH_STATE_FAILED",
  cancelled: "BATCH_STATE_CANCELLED",
  expired: "BATCH_STATE_EXPIRED",
};

/** A batch job as its API shows it. `inlined`: the results that came inline, where they are shown. */
function jobView(batch: BatchRecord, progress: JobProgress, inlined: JobOutput | null = null): Job {
  const responsesFile = resultIdOf(results, batch);
  const output = responsesFile === null ? inlined : { responsesFile: `files/${responsesFile}` };
  const name = `batches/${numberOf(batch)}`;
  const { createdAtMs, inputReadAtMs, endedAtMs, input } = batch;
  return {
    name,
    metadata: {
      "@type": TYPE,
      model: `models/${batch.model}`,
      displayName: batch.taskName,
      ...(input?.fileName == null ? {} : { inputConfig: { fileName: input.fileName } }),
      ...(output === null ? {} : { output }),
      createTime: timeOf(createdAtMs),
      ...(endedAtMs === null ? {} : { endTime: timeOf(endedAtMs) }),
      updateTime: timeOf(endedAtMs ?? inputReadAtMs ?? createdAtMs),
      batchStats: statsOf(batch),
      state: STATES[progress.status],
      name,
    },
    ...(isTerminal(batch.status) ? { done: true, ...outcomeOf(progress, output) } : {}),
  };
}

function outcomeOf({ status, error }: JobProgress, output: JobOutput | null) {
  if (status === "completed") return { response: { "@type": OUTPUT_TYPE, ...output } };
  if (status === "cancelled")
    return { error: { code: RPC_CODES.CANCELLED, message: "The job was cancelled." } };
  if (status === "expired") {
    return { error: { code: RPC_CODES.DEADLINE_EXCEEDED, message: "The job expired." } };
  }
  const code = error?.code ?? "";
  const httpStatus = isErrorCode(code) ? errorEntry(code).httpStatus : 500;
  const message = error?.message ?? "The job failed.";
  return { error: { code: RPC_CODES[nativeStatus(httpStatus)], message } };
}

/** Counters are text, and left out when they are 0. */
function statsOf({ itemCount, successCount, failCount }: BatchRecord): Job["metadata"]["batchStats"] {
  const counters = {
    requestCount: itemCount,
    pendingRequestCount: itemCount - successCount - failCount,
    successfulRequestCount: successCount,
    failedRequestCount: failCount,
  };
  return Object.fromEntries(
    Object.entries(counters).flatMap(([name, count]) => (count === 0 ? [] : [[name, String(count)]])),
  );
}

const timeOf = (ms: number) => new Date(ms).toISOString();

const paging = pagingBy("j", ["createdAtMs", "seq"], "PageToken");
const { inlineLines, inlineLineFields, jobPageDefault } = FIXED_LIMITS;
const marks = { "batch.inputConfig.requests.requests[].request": CONTENT_SHAPE };
const SHAPE = shapeOf(nativeSchemas.CreateJob, marks, true);

const formatOf = ({ promptChars }: Limits): BodyFormat => ({
  shape: SHAPE,
  prompts: 2 * inlineLines,
  images: MAX_INPUT_IMAGES * inlineLines,
  promptChars,
  fields: inlineLineFields * inlineLines,
  code: () => "REALTIME_INVALID_ARGUMENT",
});

const results: ResultFile = {
  prefix: "batch-",
  exists: (batch) => hasResults(batch) && batch.input?.fileName != null,
  line: (batch, result) => resultLine(batch, result, "key"),
};

/** Clients cut the name of a file at the first character that is no letter or digit, so the ids of jobs have no underscore. */
const jobs = vendorJobs({
  source: "native",
  prefix: "",
  view: jobView,
  showsCancelled: false,
  // Results that came inline are left out of a list.
  readPage: async (_deps, request) => {
    const limit = readQuery(request, "JobPageSize") || jobPageDefault;
    return {
      limit,
      filter: paging.start(request),
      body: (operations, found) => {
        const { next_cursor: next } = paging.page(found, limit, (batch) => batch);
        return { operations, ...(next === null ? {} : { nextPageToken: next }) };
      },
    };
  },
  results: [results],
  readerOf: (deps, request, response) => {
    const model = findModel(deps, request, response, "batch");
    return {
      format: formatOf(deps.limits),
      // A worker checks the images with their lines, and refuses those that are too large.
      images: { base64: "lenient", maxBytes: FIXED_LIMITS.inlineBodyBytes, blobs: deps.blobs },
      read: async ({ key }, body) => {
        const { name, input } = checkJob(body);
        if ("lines" in input) return { model, name, input };
        const { id, blobKey } = await usableFile(deps, key.id, input.fileName, `${INPUT}.fileName`);
        return { model, name, input: { fileName: `files/${id}`, blobKey } };
      },
    };
  },
});

export const { resultFile } = jobs;

/** The job with its results in it, twice, as its clients expect. The images are read when they are sent. */
async function withResults(deps: ApiDeps, batch: BatchRecord): Promise<Piece[]> {
  const mark = randomBytes(16).toString("hex");
  const progress = await progressOf(deps.stores, batch);
  const view = jobView(batch, progress, { inlinedResponses: { inlinedResponses: [{ mark }] } });
  const lines = await resultLines(deps.stores, batch, (result) => resultLine(batch, result, "metadata"));
  const list = lines.flatMap((line, i) => (i === 0 ? line : [",", ...line]));
  return JSON.stringify(view)
    .split(JSON.stringify({ mark }))
    .flatMap((text, i) => (i === 0 ? [text] : [...list, text]));
}

const nothing = { description: "An empty object.", schema: "Empty" };

/** The verb of a model that makes a batch job. */
export const createJobOperation: Operation = {
  ...jobs.create,
  id: "batchGenerateContent",
  path: `${PATHS.nativeModel}:batchGenerateContent`,
  summary: "Make many images as a job, from a file of requests or from requests in the body",
  parameters: ["Model", "MaxCost"],
  body: "CreateJob",
  answers: { 200: { description: "The job. Its lines are read and paid for later.", schema: "Job" } },
};

const remove = {
  summary: "Delete an ended job and its results",
  parameters: ["JobId"],
  answers: { 200: nothing },
  errors: [...jobs.get.errors, "JOB_NOT_ENDED"],
  guards: jobs.get.guards,
  handler: (deps) => async (request, response) => {
    const batch = await jobs.find(deps, request, response);
    if (!isTerminal(batch.status)) {
      throw new ImgbatchError("JOB_NOT_ENDED", "The job has not ended; cancel it before you delete it.");
    }
    await deleteRecord(deps, batch.id, deps.clock.nowMs());
    response.json({});
  },
} as const satisfies Partial<Operation>;

/** The operations on jobs. `{job}:cancel` comes before `{job}`, which matches its path, too. */
export const jobOperations: readonly Operation[] = [
  {
    ...jobs.list,
    id: "listJobs",
    path: PATHS.nativeJobs,
    summary: "The jobs of this key, newest first",
    parameters: ["JobPageSize", "PageToken"],
    answers: { 200: { description: "A page of jobs.", schema: "JobList" } },
    errors: [...JOB_ERRORS, "REALTIME_INVALID_ARGUMENT", "BATCH_IMAGE_INVALID_QUERY"],
  },
  {
    ...jobs.cancel,
    id: "cancelJob",
    path: `${PATHS.nativeJob}:cancel`,
    summary: "Stop a job. What was made stays, and is paid for",
    parameters: ["JobId"],
    answers: { 200: nothing },
  },
  { ...remove, id: "deleteJobByVerb", method: "post", path: `${PATHS.nativeJob}:delete` },
  {
    ...jobs.get,
    id: "getJob",
    path: PATHS.nativeJob,
    summary: "A job as it is now",
    parameters: ["JobId"],
    answers: {
      200: { description: "The job; with its results when its requests came inline.", schema: "Job" },
    },
    errors: [...jobs.get.errors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
    handler: (deps) => async (request, response) => {
      const batch = await jobs.find(deps, request, response);
      if (batch.input?.fileName != null || !hasResults(batch)) {
        response.json(await jobs.show(deps, batch));
        return;
      }
      const leaveSlot = deps.slots.take(batch.apiKeyId);
      try {
        const pieces = await withResults(deps, batch);
        const sizeBytes = pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0);
        response.setHeader("Content-Type", "application/json; charset=utf-8");
        response.setHeader("Content-Length", sizeBytes);
        await sendBytes(response, pieceStream(deps.blobs, pieces, { start: 0, end: sizeBytes - 1 }));
      } finally {
        leaveSlot();
      }
    },
  },
  { ...remove, id: "deleteJob", method: "delete", path: PATHS.nativeJob },
];

/**
 * Returns the reader of the native API's batch jobs: a JSON object a line, with the `request` as `generateContent` takes it,
 * and the client's `key`. A line without `request` is the request itself.
 */
export function nativeLines(rules: LineRules): LineReader {
  const images = { base64: "lenient", maxBytes: rules.limits.referenceImageBytes } as const;
  const shape = { ...(CONTENT_SHAPE as object), key: "any", request: CONTENT_SHAPE } as const;
  const format: LineFormat = {
    keyOf: ({ key }: { key?: unknown }) => key,
    check: async (line: { request?: unknown }, { model, ...given }) => {
      const request = line.request === undefined ? line : line.request;
      if (!isObject(request)) throw invalidArgument("request", "must be an object");
      const { strictImageConfig } = rules.features;
      return checkContent(request, { ...rules, strictImageConfig, ...given });
    },
  };
  return lineReader(rules, { format: contentFormat(rules.limits, shape), images }, () => format);
}

/** A result as a JSON object. `keyField` is the field in which the client's name of the line comes back. */
function resultLine(
  batch: BatchRecord,
  { item, outputs, inputImages }: ItemResult,
  keyField: "key" | "metadata",
): Piece[] {
  const { error, clientKey, modelVersion, answer } = item;
  const key = clientKey === null ? "" : `,${JSON.stringify(keyField)}:${clientKey}`;
  const isAnswer = error === null || error.code === "SAFETY_BLOCKED" || error.code === "EMPTY_IMAGE_OUTPUT";
  if (!isAnswer) {
    const { code, message } = { code: rpcCodeOf(error.code), message: error.message };
    return [`{"error":${JSON.stringify({ code, message })}${key}}`];
  }
  const version = modelVersion ?? batch.model;
  const prompt = joinTurns(item.earlier, item.prompt);
  const drawn = { model: version, prompt, inputImages, size: item.options.size };
  const isDrawn = batch.upstream === DRAWINGS;
  const response = contentBody({
    id: `${numberOf(batch)}-${item.position + 1}`,
    usageMetadata: usageMetadataOf(
      answer,
      item.usage,
      isDrawn ? { ...drawn, outputImages: outputs.length } : null,
    ),
    modelVersion: version,
    images: outputs.map(({ mimeType }) => ({ mimeType, data: IMAGE_PLACE })),
    refusal: error?.code === "SAFETY_BLOCKED" ? error.message : null,
    failure: error?.message ?? null,
    answer,
  });
  return withImages(`{"response":${JSON.stringify(response)}${key}}`, outputs);
}

const STATUSES: Partial<Record<ItemErrorCode, number>> = {
  INVALID_ARGUMENT: 400,
  CANCELLED: 499,
  PROVIDER_RATE_LIMITED: 429,
  PROVIDER_TIMEOUT: 504,
};

function rpcCodeOf(code: ItemErrorCode): number {
  return RPC_CODES[nativeStatus(STATUSES[code] ?? 500)];
}
