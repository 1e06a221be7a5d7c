import type { Request, Response } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { BatchSource } from "../../contract/statuses.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { type Piece, pieceBytes, pieceStream } from "../../domain/downloads/piece-stream.ts";
import { findFile, type GeneratedFile } from "../../domain/files/uploads.ts";
import { createJob } from "../../domain/jobs/create-job.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { BatchPage, FileRecord } from "../../domain/ports/stores.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf, consentingCaller, requireBatchFeature, requireBatchGroup } from "../http/authenticate.ts";
import type { Operation } from "../operation.ts";
import type { ImageTexts, TakenBody } from "../request-body/image-extraction.ts";
import { withJsonBody } from "../request-body/json-body.ts";
import type { BodyFormat } from "../request-body/json-reader.ts";
import { type ItemResult, type JobProgress, progressOf, resultLines } from "./results.ts";
import { type ListPage, sendPage } from "./vendor-files.ts";

type JobFilter = Pick<BatchPage, "after" | "offset">;

/** How a request for a job is read. */
interface JobReader {
  format: BodyFormat;
  /** The rules for the images in the body; null when it has none. */
  images: ImageTexts | null;
  /** Returns the job that is asked for, or the one that an equal request has made before. */
  read(
    caller: Caller,
    body: TakenBody,
  ): Promise<Omit<Parameters<typeof createJob>[2], "source"> | { repeated: BatchRecord }>;
}

/** A file with results that the service makes of an ended job. */
export interface ResultFile {
  /** The id of the file is this and the number of the job. */
  prefix: string;
  exists(batch: BatchRecord): boolean;
  /** Returns an item as a line of the file; null when the file leaves it out. */
  line(batch: BatchRecord, result: ItemResult): Piece[] | null;
}

/** How one vendor's API names, lists and shows the jobs that were made with it. */
interface JobDialect {
  source: BatchSource;
  /** The id of a job is this and its number. */
  prefix: string;
  view(batch: BatchRecord, progress: JobProgress): object;
  /** Whether the answer to a cancellation is the job, and not an empty object. */
  showsCancelled: boolean;
  /** `find` returns the job of the caller with this id; null when there is none. */
  readPage(
    deps: ApiDeps,
    request: Request,
    find: (id: string) => Promise<BatchRecord | null>,
  ): Promise<ListPage<BatchRecord & { seq: number }, JobFilter>>;
  results: readonly ResultFile[];
  /** Throws the errors that need no body. */
  readerOf(deps: ApiDeps, request: Request, response: Response): JobReader;
}

/** The ids of batches in the batch API begin with this. */
const OWN_PREFIX = "imgbatch_";

/** The part of a batch's id that the ids of its job and of its files have, too. */
export function numberOf({ id }: Pick<BatchRecord, "id">): string {
  return id.startsWith(OWN_PREFIX) ? id.slice(OWN_PREFIX.length) : id;
}

const guards = [requireBatchGroup];
/** The errors of every operation on jobs. */
export const JOB_ERRORS = ["BATCH_IMAGE_GROUP_DISABLED"] as const satisfies readonly ServiceErrorCode[];
const oneJobErrors = [...JOB_ERRORS, "JOB_NOT_FOUND"] as const;

/** The operations on jobs that all vendors have, but for their ids, paths and words; and what others are made of. */
export function vendorJobs({ source, prefix, results, ...dialect }: JobDialect) {
  const ownBatch = async ({ stores }: Pick<ApiDeps, "stores">, keyId: string, number: string) => {
    const batch = await stores.read.batches.byId(OWN_PREFIX + number);
    const isOwn = batch?.apiKeyId === keyId && batch.source === source && batch.recordDeletedAtMs === null;
    return isOwn ? batch : null;
  };
  const byJobId = async (deps: ApiDeps, keyId: string, id: string) =>
    id.startsWith(prefix) ? ownBatch(deps, keyId, id.slice(prefix.length)) : null;
  /** Returns the batch of the job in the path. Throws the same `JOB_NOT_FOUND` for all that are not the caller's. */
  const find = async (deps: ApiDeps, request: Request, response: Response): Promise<BatchRecord> => {
    const batch = await byJobId(deps, callerOf(response).key.id, String(request.params.id));
    if (batch !== null) return batch;
    throw new ImgbatchError("JOB_NOT_FOUND");
  };
  const show = async ({ stores }: ApiDeps, batch: BatchRecord) =>
    dialect.view(batch, await progressOf(stores, batch));
  /** Returns which results a file id of this key stands for; null for every other id, and for a file that was deleted. */
  const findResult = async (deps: Pick<ApiDeps, "stores">, keyId: string, fileId: string) => {
    const file = results.find((each) => fileId.startsWith(each.prefix));
    const batch = file && (await ownBatch(deps, keyId, fileId.slice(file.prefix.length)));
    return file && batch && file.exists(batch) ? { file, batch } : null;
  };
  const operations = {
    create: {
      method: "post",
      errors: CREATION_ERRORS,
      guards: [requireBatchFeature, ...guards],
      handler: (deps) => async (request, response) => {
        const caller = consentingCaller(request, response, "REALTIME_INVALID_ARGUMENT");
        const { read, ...reader } = dialect.readerOf(deps, request, response);
        const options = { ...deps, ...reader, maxBytes: FIXED_LIMITS.inlineBodyBytes };
        const batch = await withJsonBody(request, response, options, async (body) => {
          const asked = await read(caller, body);
          if ("repeated" in asked) return asked.repeated;
          const made = await createJob(deps, caller, { source, ...asked });
          deps.onBatchCreated(made);
          return made;
        });
        response.json(await show(deps, batch));
      },
    },
    /** The jobs of the key, newest first. */
    list: {
      method: "get",
      guards,
      handler: (deps) => async (request, response) => {
        const { id: apiKeyId } = callerOf(response).key;
        const page = await dialect.readPage(deps, request, (id) => byJobId(deps, apiKeyId, id));
        await sendPage(
          response,
          page,
          (asked) => deps.stores.read.batches.page({ apiKeyId, source, ...asked }),
          (batch) => show(deps, batch),
        );
      },
    },
    get: {
      method: "get",
      errors: oneJobErrors,
      guards,
      handler: (deps) => async (request, response) => {
        response.json(await show(deps, await find(deps, request, response)));
      },
    },
    /** Stops the job; an ended one stays as it is. */
    cancel: {
      method: "post",
      errors: [...oneJobErrors, "BATCH_IMAGE_CANCEL_FAILED", "BATCH_IMAGE_QUEUE_FAILED"],
      guards,
      handler: (deps) => async (request, response) => {
        const { id } = await find(deps, request, response);
        await deps.cancel(id);
        response.json(dialect.showsCancelled ? await show(deps, await find(deps, request, response)) : {});
      },
    },
  } as const satisfies Record<string, Partial<Operation>>;
  return {
    ...operations,
    find,
    show,
    findResult,
    /** Returns the download of results: JSON lines, whose size is known before the first byte. See `findResult`. */
    resultFile: async (
      deps: Pick<ApiDeps, "stores" | "blobs">,
      keyId: string,
      fileId: string,
    ): Promise<GeneratedFile | null> => {
      const found = await findResult(deps, keyId, fileId);
      if (found === null) return null;
      const { file, batch } = found;
      const lines = await resultLines(deps.stores, batch, (result) => file.line(batch, result));
      return linesFile(deps.blobs, batch, fileId, lines);
    },
  };
}

/** The id of a file with results of a batch; null when it has none. */
export function resultIdOf({ prefix, exists }: ResultFile, batch: BatchRecord): string | null {
  return exists(batch) ? prefix + numberOf(batch) : null;
}

const CREATION_ERRORS: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_GROUP_DISABLED",
  "BATCH_IMAGE_DISABLED",
  "REALTIME_INVALID_ARGUMENT",
  "REALTIME_MODEL_NOT_FOUND",
  "JOB_FILE_UNUSABLE",
  "JOB_LIMIT_REACHED",
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TOO_LARGE",
  "INVALID_JSON",
  "BATCH_IMAGE_SETTLEMENT_PRICING_MISSING",
  "BATCH_IMAGE_NO_ACCOUNT_AVAILABLE",
  "BATCH_IMAGE_QUEUE_FAILED",
];

/**
 * Returns the file of a key whose lines are the input of a job, by its name, id or URI. `param` is the field that names it.
 * Throws `JOB_FILE_UNUSABLE` when the key has no such file, and when it is empty.
 */
export async function usableFile(
  { stores, clock }: Pick<ApiDeps, "stores" | "clock">,
  keyId: string,
  name: string,
  param: string,
): Promise<FileRecord> {
  const file = await findFile(stores.read, keyId, name, clock.nowMs());
  const refused = (why: string) => new ImgbatchError("JOB_FILE_UNUSABLE", `${param}: ${why}`, { param });
  if (file === null) throw refused("must be the name of a file that was uploaded with this key");
  if (file.sizeBytes === 0) throw refused("the file is empty");
  return file;
}

/** Returns a file of JSON lines about an ended batch. Its images are read when they are sent. */
function linesFile(
  blobs: Pick<BlobStore, "reader">,
  { id, endedAtMs, createdAtMs, outputsExpireAtMs }: BatchRecord,
  fileId: string,
  lines: readonly (readonly Piece[])[],
): GeneratedFile {
  const pieces = lines.flatMap((line) => [...line, "\n"]);
  const sizeBytes = pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0);
  return {
    sizeBytes,
    // An ended batch does not change.
    etag: sha256Hex(`${id} ${fileId} ${endedAtMs} ${sizeBytes}`).slice(0, 32),
    mimeType: "application/jsonl",
    createdAtMs: endedAtMs ?? createdAtMs,
    expiresAtMs: outputsExpireAtMs,
    open: (range) => pieceStream(blobs, pieces, range),
  };
}
