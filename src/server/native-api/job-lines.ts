import { nativeStatus, RPC_CODES } from "../../contract/errors.ts";
import type { ItemErrorCode } from "../../contract/statuses.ts";
import { askedOf } from "../../domain/batches/new-batch.ts";
import type { Piece } from "../../domain/downloads/piece-stream.ts";
import type { GeneratedFile } from "../../domain/files/generated.ts";
import type { LineReader } from "../../domain/lines/take-in.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ApiDeps } from "../deps.ts";
import { fieldError } from "../http/errors.ts";
import { type LineFormat, type LineRules, lineReader } from "../jobs/lines.ts";
import { hasResults, type ItemResult, linesFile, ownJob, resultLines } from "../jobs/results.ts";
import { isObject } from "../request-body/json-lines.ts";
import { checkContent } from "./check-content.ts";
import { contentBody } from "./content-view.ts";
import { CONTENT_SHAPE, contentFormat } from "./generate.ts";

/**
 * Clients cut the name of a file at the first character that is no letter or digit, so the ids of jobs have no underscore.
 */
const OWN = "imgbatch_";
const RESULT = "batch-";

/** The id of the job of a batch. */
export function jobId(batchId: string): string {
  return batchId.startsWith(OWN) ? batchId.slice(OWN.length) : batchId;
}

/** The batch of a job. */
export function batchOfJob(id: string): string {
  return `${OWN}${id}`;
}

/** The id of the file with the results of a batch. */
export function resultFileId(batchId: string): string {
  return `${RESULT}${jobId(batchId)}`;
}

/** The batch whose results a file has; null for another file. */
function batchOfResultFile(fileId: string): string | null {
  return fileId.startsWith(RESULT) ? batchOfJob(fileId.slice(RESULT.length)) : null;
}

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
      if (!isObject(request)) throw fieldError("REALTIME_INVALID_ARGUMENT", "request", "must be an object");
      const { strictImageConfig } = rules.features;
      return checkContent(request, model, { ...rules, strictImageConfig, ...given });
    },
  };
  return lineReader(rules, { format: contentFormat(rules.limits, shape), images }, () => format);
}

const NO_DATA = '"data":""';

/** A result as a JSON object. `keyField` is the field in which the client's name of the line comes back. */
export function resultLine(
  batch: BatchRecord,
  { item, outputs, inputImages }: ItemResult,
  keyField: "key" | "metadata",
): Piece[] {
  const { error, clientKey, modelVersion } = item;
  const key = clientKey === null ? "" : `,${JSON.stringify(keyField)}:${clientKey}`;
  const isAnswer = error === null || error.code === "SAFETY_BLOCKED" || error.code === "EMPTY_IMAGE_OUTPUT";
  if (!isAnswer) {
    const { code, message } = { code: rpcCodeOf(error.code), message: error.message };
    return [`{"error":${JSON.stringify({ code, message })}${key}}`];
  }
  const response = JSON.stringify(
    contentBody({
      id: `${jobId(batch.id)}-${item.position + 1}`,
      prompt: item.prompt,
      earlier: item.earlier ?? "",
      size: askedOf(batch, item).tier,
      inputImages,
      executed: modelVersion ?? batch.model,
      modelVersion: modelVersion ?? batch.model,
      images: outputs.map(({ mimeType }) => ({ mimeType, data: "" })),
      refusal: error?.code === "SAFETY_BLOCKED" ? error.message : null,
    }),
  );
  // The images stand before every text that others have written.
  const parts = outputs.length === 0 ? [response] : response.split(NO_DATA, outputs.length);
  const rest = response.slice(parts.join(NO_DATA).length + NO_DATA.length);
  const pieces: Piece[] = ['{"response":'];
  for (const [at, { blobKey, sizeBytes, crc32 }] of outputs.entries()) {
    pieces.push(`${parts[at] ?? ""}"data":"`, { blobKey, sizeBytes, crc32, isBase64: true }, '"');
  }
  return [...pieces, `${outputs.length === 0 ? response : rest}${key}}`];
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

/**
 * Returns the download of a job's results: JSON lines, whose size is known before the first byte. Null when the id is not
 * that of a result file of this key, and when the images were deleted.
 */
export async function resultFile(
  deps: Pick<ApiDeps, "stores" | "blobs">,
  keyId: string,
  fileId: string,
): Promise<GeneratedFile | null> {
  const batchId = batchOfResultFile(fileId);
  const batch = batchId && (await ownJob(deps.stores, keyId, "native", batchId));
  if (!batch || !hasResults(batch) || batch.input?.fileName == null) return null;
  const lines = await resultLines(deps.stores, batch, (result) => resultLine(batch, result, "key"));
  return linesFile(deps.blobs, batch, fileId, lines);
}
