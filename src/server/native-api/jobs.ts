import { randomBytes } from "node:crypto";
import type { Request, Response } from "express";
import type { z } from "zod";
import {
  errorEntry,
  ImgbatchError,
  isErrorCode,
  nativeStatus,
  RPC_CODES,
  type ServiceErrorCode,
} from "../../contract/errors.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import {
  createJobSchema,
  type Job,
  type JobList,
  type JobOutput,
  type JobState,
} from "../../contract/native-jobs.ts";
import { PATHS } from "../../contract/routes.ts";
import { isTerminal } from "../../contract/statuses.ts";
import { inWords } from "../../contract/text-rules.ts";
import { deleteRecord } from "../../domain/batches/delete.ts";
import { type Piece, pieceBytes, pieceStream } from "../../domain/downloads/piece-stream.ts";
import type { SentTexts } from "../../domain/images/sent-image.ts";
import { createJob, type LineText } from "../../domain/lines/create-job.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import { MAX_INPUT_IMAGES } from "../../domain/realtime/models.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { fieldsOf } from "../../kernel/json/fields.ts";
import { hasUnstorableText, truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf, consentingCaller, requireBatchFeature, requireBatchGroup } from "../http/authenticate.ts";
import { sendBytes } from "../http/downloads.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";
import { pageSizeOf, pagingBy } from "../http/query.ts";
import { hasResults, type JobProgress, ownJob, progressOf, resultLines } from "../jobs/results.ts";
import { CREATION_ERRORS, usableFile } from "../jobs/vendor-jobs.ts";
import type { Operation } from "../operation.ts";
import { type BodyFormat, shapeOf } from "../request-body/body-shape.ts";
import type { TakenBody } from "../request-body/image-extraction.ts";
import { withJsonBody } from "../request-body/json-body.ts";
import { camelKeys } from "./check-content.ts";
import { CONTENT_SHAPE } from "./generate.ts";
import { batchOfJob, jobId, resultFileId, resultLine } from "./job-lines.ts";
import { findBatchModel } from "./models.ts";

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
  const parsed = createJobSchema.safeParse(given, { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error as z.ZodError, "REALTIME_INVALID_ARGUMENT");
  const { displayName, inputConfig } = parsed.data.batch;
  const name = truncateCodePoints((displayName ?? "").trim(), FIXED_LIMITS.taskNameChars) || null;
  if (name !== null && hasUnstorableText(name)) {
    throw invalid("batch.displayName", "must not hold NUL or half of a surrogate pair");
  }
  const requests = inputConfig.requests?.requests;
  const fileName = inputConfig.fileName || null;
  if (fileName !== null && requests !== undefined) {
    throw invalid(INPUT, "takes either fileName or requests, not both");
  }
  if (fileName !== null) return { name, input: { fileName } };
  if (requests === undefined) throw invalid(INPUT, "needs the fileName of an uploaded file, or requests");
  if (requests.length === 0) throw invalid(REQUESTS, "must not be empty");
  const mostChars = FIXED_LIMITS.lineKeyJsonChars;
  const long = requests.findIndex(
    ({ metadata }) => metadata != null && JSON.stringify(metadata).length > mostChars,
  );
  if (long >= 0)
    throw invalid(`${REQUESTS}[${long}].metadata`, `has more than ${mostChars} characters as JSON`);
  return { name, input: { lines: linesOf(requests, sent) } };
}

/** Comes first: the schema would describe every wrong element of a long list. */
function refuseTooMany(body: unknown): void {
  const names = ["batch", "inputConfig", "requests", "requests"];
  const requests = names.reduce<unknown>((holder, name) => fieldsOf(holder)?.[name], body);
  const most = FIXED_LIMITS.inlineLines;
  if (!Array.isArray(requests) || requests.length <= most) return;
  const problem = `has ${requests.length} requests; at most ${most} can come inline. Upload a file with more`;
  throw invalid(REQUESTS, problem);
}

type Requests = NonNullable<z.infer<typeof createJobSchema>["batch"]["inputConfig"]["requests"]>["requests"];

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

function invalid(param: string, problem: string): ImgbatchError {
  return fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
}

const TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch";
const OUTPUT_TYPE = `${TYPE}Output`;

const STATES: Record<JobProgress["status"], JobState> = {
  queued: "BATCH_STATE_PENDING",
  running: "BATCH_STATE_RUNNING",
  processing_results: "BATCH_STATE_RUNNING",
  settling: "BATCH_STATE_RUNNING",
  completed: "BATCH_STATE_SUCCEEDED",
  failed: "BATCH_STATE_FAILED",
  cancelled: "BATCH_STATE_CANCELLED",
  expired: "BATCH_STATE_EXPIRED",
};

/**
 * A batch job as its API shows it. `output` is null when it has none, or none yet.
 */
function jobView(batch: BatchRecord, progress: JobProgress, output: JobOutput | null): Job {
  const name = `batches/${jobId(batch.id)}`;
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

/** Returns the batch of a job that this key made with this API. Throws the same `JOB_NOT_FOUND` for all others. */
async function findJob(stores: Stores, keyId: string, id: unknown): Promise<BatchRecord> {
  const batch = await ownJob(stores, keyId, "native", batchOfJob(String(id)));
  if (batch !== null) return batch;
  throw new ImgbatchError("JOB_NOT_FOUND");
}

const paging = pagingBy("j", ["createdAtMs", "seq"], "pageToken");

/** `GET …/batches`: the jobs of the key, newest first, a page at a time. Results that came inline are left out. */
function listJobs(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { key } = callerOf(response);
    const { jobPageDefault, jobPageMax } = FIXED_LIMITS;
    const limit = pageSizeOf(request, jobPageDefault, jobPageMax);
    const filter = { apiKeyId: key.id, source: "native", ...paging.start(request) } as const;
    const found = await deps.stores.read.batches.page({ ...filter, limit: limit + 1 });
    const { data, next_cursor: next } = paging.page(found, limit, (batch) => batch);
    const operations = [];
    for (const batch of data) operations.push(await viewOf(deps, batch));
    const list: JobList = { operations, ...(next === null ? {} : { nextPageToken: next }) };
    response.json(list);
  };
}

async function viewOf({ stores }: ApiDeps, batch: BatchRecord, inlined: JobOutput | null = null) {
  const isFile = batch.input?.fileName != null;
  const file = isFile && hasResults(batch) ? { responsesFile: `files/${resultFileId(batch.id)}` } : null;
  return jobView(batch, await progressOf(stores, batch), file ?? inlined);
}

/** `GET …/batches/{id}`: the job as it is now, with the results of one that came inline, which is a download. */
export function getJob(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { key } = callerOf(response);
    const batch = await findJob(deps.stores, key.id, request.params.id);
    if (batch.input?.fileName != null || !hasResults(batch)) {
      response.json(await viewOf(deps, batch));
      return;
    }
    const leaveSlot = deps.slots.take(key.id);
    try {
      const pieces = await withResults(deps, batch);
      const sizeBytes = pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0);
      response.setHeader("Content-Type", "application/json; charset=utf-8");
      response.setHeader("Content-Length", sizeBytes);
      await sendBytes(response, pieceStream(deps.blobs, pieces, { start: 0, end: sizeBytes - 1 }));
    } finally {
      leaveSlot();
    }
  };
}

/** The job with its results in it, twice, as its clients expect. The images are read when they are sent. */
async function withResults(deps: ApiDeps, batch: BatchRecord): Promise<Piece[]> {
  const mark = randomBytes(16).toString("hex");
  const view = await viewOf(deps, batch, { inlinedResponses: { inlinedResponses: [{ mark }] } });
  const lines = await resultLines(deps.stores, batch, (result) => resultLine(batch, result, "metadata"));
  const list = lines.flatMap((line, i) => (i === 0 ? line : [",", ...line]));
  return JSON.stringify(view)
    .split(JSON.stringify({ mark }))
    .flatMap((text, i) => (i === 0 ? [text] : [...list, text]));
}

/** `POST …/batches/{id}:cancel`: stops the job; an ended one stays as it is. */
function cancelJob(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id } = await findJob(deps.stores, callerOf(response).key.id, request.params.id);
    await deps.cancel(id);
    response.json({});
  };
}

/**
 * `DELETE …/batches/{id}`, also as `POST …:delete`: hides an ended job and its results. A job that runs must be cancelled
 * first: it would go on and cost, and nobody could see it.
 */
function deleteJob(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findJob(deps.stores, callerOf(response).key.id, request.params.id);
    if (!isTerminal(batch.status)) {
      throw new ImgbatchError("JOB_NOT_ENDED", "The job has not ended; cancel it before you delete it.");
    }
    await deleteRecord(deps, batch.id, deps.clock.nowMs());
    response.json({});
  };
}

const SHAPE = shapeOf(
  createJobSchema,
  { "batch.inputConfig.requests.requests[].request": CONTENT_SHAPE },
  true,
);
const { inlineLines, inlineLineFields } = FIXED_LIMITS;

const formatOf = ({ promptChars }: Limits): BodyFormat => ({
  shape: SHAPE,
  prompts: 2 * inlineLines,
  images: MAX_INPUT_IMAGES * inlineLines,
  promptChars,
  fields: inlineLineFields * inlineLines,
  code: () => "REALTIME_INVALID_ARGUMENT",
});

/** `POST …:batchGenerateContent`: accepts a batch job. Its lines are checked and paid for later, by a worker. */
function createBatchJob(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const model = findBatchModel(deps, request, response);
    const maxBytes = FIXED_LIMITS.inlineBodyBytes;
    // A worker checks the images with their lines, and refuses those that are too large.
    const images = { base64: "lenient", maxBytes, blobs: deps.blobs } as const;
    const options = { ...deps, maxBytes, format: formatOf(deps.limits), images };
    const batch = await withJsonBody(request, response, options, async (body) => {
      const { name, input } = checkJob(body);
      const source = "native";
      const lines = "lines" in input ? input : await fileInput(deps, caller.key.id, input.fileName);
      return createJob(deps, caller, { source, model, name, input: lines });
    });
    deps.onBatchCreated(batch);
    response.json(jobView(batch, { status: "queued", error: null }, null));
  };
}

async function fileInput(deps: ApiDeps, keyId: string, name: string) {
  const { id, blobKey } = await usableFile(deps, keyId, name, "batch.inputConfig.fileName");
  return { fileName: `files/${id}`, blobKey };
}

const guards = [requireBatchGroup];
const groupErrors: readonly ServiceErrorCode[] = ["BATCH_IMAGE_GROUP_DISABLED"];
const nothing = { description: "An empty object.", schema: "Empty" };

/** The verb of a model that makes a batch job. */
export const createJobOperation: Operation = {
  id: "batchGenerateContent",
  method: "post",
  path: `${PATHS.nativeModel}:batchGenerateContent`,
  summary: "Make many images as a job, from a file of requests or from requests in the body",
  parameters: ["Model", "MaxCost"],
  body: "CreateJob",
  answers: { 200: { description: "The job. Its lines are read and paid for later.", schema: "Job" } },
  errors: CREATION_ERRORS,
  guards: [requireBatchFeature, ...guards],
  handler: createBatchJob,
};

const remove = {
  summary: "Delete an ended job and its results",
  parameters: ["JobId"],
  answers: { 200: nothing },
  errors: [...groupErrors, "JOB_NOT_FOUND", "JOB_NOT_ENDED"],
  guards,
  handler: deleteJob,
} as const satisfies Partial<Operation>;

/** The operations on jobs. A verb stands before the job: its path looks like the path of a job. */
export const jobOperations: readonly Operation[] = [
  {
    id: "listJobs",
    method: "get",
    path: PATHS.nativeJobs,
    summary: "The jobs of this key, newest first",
    parameters: ["JobPageSize", "PageToken"],
    answers: { 200: { description: "A page of jobs.", schema: "JobList" } },
    errors: [...groupErrors, "REALTIME_INVALID_ARGUMENT", "BATCH_IMAGE_INVALID_QUERY"],
    guards,
    handler: listJobs,
  },
  {
    id: "cancelJob",
    method: "post",
    path: `${PATHS.nativeJob}:cancel`,
    summary: "Stop a job. What was made stays, and is paid for",
    parameters: ["JobId"],
    answers: { 200: nothing },
    errors: [...groupErrors, "JOB_NOT_FOUND", "BATCH_IMAGE_CANCEL_FAILED", "BATCH_IMAGE_QUEUE_FAILED"],
    guards,
    handler: cancelJob,
  },
  { ...remove, id: "deleteJobByVerb", method: "post", path: `${PATHS.nativeJob}:delete` },
  {
    id: "getJob",
    method: "get",
    path: PATHS.nativeJob,
    summary: "A job as it is now",
    parameters: ["JobId"],
    answers: {
      200: { description: "The job; with its results when its requests came inline.", schema: "Job" },
    },
    errors: [...groupErrors, "JOB_NOT_FOUND", "BATCH_IMAGE_DOWNLOAD_LIMITED"],
    guards,
    handler: getJob,
  },
  { ...remove, id: "deleteJob", method: "delete", path: PATHS.nativeJob },
];
