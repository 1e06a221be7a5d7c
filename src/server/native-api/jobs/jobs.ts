import { randomBytes } from "node:crypto";
import type { Request, Response } from "express";
import { ImgbatchError } from "../../../contract/errors.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import type { JobList, JobOutput } from "../../../contract/native-jobs.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { deleteRecord } from "../../../domain/batches/delete-record.ts";
import { type Piece, pieceBytes, pieceStream } from "../../../domain/downloads/piece-stream.ts";
import type { BatchRecord } from "../../../domain/records.ts";
import type { ApiDeps } from "../../deps.ts";
import { sendBytes } from "../../downloads/send-bytes.ts";
import { endedAs, hasResults } from "../../jobs/own-job.ts";
import { resultLines } from "../../jobs/result-lines.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { pagingBy } from "../../query/cursor.ts";
import { pageSizeOf } from "../paging.ts";
import { findJob } from "./find-job.ts";
import { resultFileId } from "./job-id.ts";
import { jobView } from "./job-view.ts";
import { resultLine } from "./result-line.ts";

const paging = pagingBy("j", ["createdAtMs", "seq"], "pageToken");

/** `GET …/batches`: the jobs of the key, newest first, a page at a time. Results that came inline are left out. */
export function listJobs(deps: ApiDeps) {
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
  return jobView(batch, await endedAs(stores, batch), file ?? inlined);
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
export function cancelJob(deps: ApiDeps) {
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
export function deleteJob(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findJob(deps.stores, callerOf(response).key.id, request.params.id);
    if (!isTerminal(batch.status)) {
      throw new ImgbatchError("JOB_NOT_ENDED", "The job has not ended; cancel it before you delete it.");
    }
    await deleteRecord(deps, batch.id, deps.clock.nowMs());
    response.json({});
  };
}
