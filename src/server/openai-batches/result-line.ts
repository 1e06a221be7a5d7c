import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { type Images, openaiErrorBody } from "../../contract/openai-api.ts";
import type { ItemError, ItemErrorCode } from "../../contract/statuses.ts";
import { askedOf } from "../../domain/batches/item-terms.ts";
import type { Piece } from "../../domain/downloads/piece-stream.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ItemResult } from "../jobs/result-lines.ts";
import { usageOf } from "../native-api/response/tokens.ts";
import { imageFacts, usageView } from "../openai-images/images-view.ts";

/**
 * Marks where the Base64 of the image belongs. No text of a caller looks like it: such texts come later in the line, or
 * have escaped quotes.
 */
const NO_DATA = '"b64_json":""';

/** Item errors with the status and the code that the request would have failed with in real time. */
const CODES: Partial<Record<ItemErrorCode, ServiceErrorCode>> = {
  SAFETY_BLOCKED: "REALTIME_REFUSED",
  EMPTY_IMAGE_OUTPUT: "REALTIME_NO_IMAGE",
  INVALID_ARGUMENT: "REALTIME_INVALID_ARGUMENT",
  PROVIDER_RATE_LIMITED: "REALTIME_PROVIDER_LIMITED",
  PROVIDER_TIMEOUT: "REALTIME_TIMEOUT",
};

/** An ended item as a line of the file that it belongs to: a response, or why the request was not run. */
export function resultLine(batch: BatchRecord, result: ItemResult): Piece[] {
  const { item, outputs } = result;
  const name = batch.id.replace(/^.*_/, "");
  const id = `batch_req_${name}_${item.position + 1}`;
  const custom_id = item.clientKey === null ? null : JSON.parse(item.clientKey);
  const notRun = notRunOf(batch, item.error);
  if (notRun !== null) return [JSON.stringify({ id, custom_id, response: null, error: notRun })];
  const failure = item.error && errorOf(item.error);
  const status_code = failure?.httpStatus ?? 200;
  const body = failure ? openaiErrorBody(failure) : bodyOf(batch, result);
  const response = { status_code, request_id: `${name}-${item.position + 1}`, body };
  const line = JSON.stringify({ id, custom_id, response, error: null });
  const [output] = outputs;
  if (failure || output === undefined) return [line];
  const at = line.indexOf(NO_DATA) + NO_DATA.length - 1;
  const { blobKey, sizeBytes, crc32 } = output;
  return [line.slice(0, at), { blobKey, sizeBytes, crc32, isBase64: true }, line.slice(at)];
}

/** Only the first image counts: a request of a batch asks for one. */
function bodyOf(batch: BatchRecord, { item, outputs: [output], inputImages }: ItemResult): Images {
  if (output === undefined) throw new Error(`the image of ${batch.id}/${item.customId} is not recorded`);
  const { prompt, modelVersion, finishedAtMs } = item;
  const size = askedOf(batch, item).tier;
  const model = modelVersion ?? batch.model;
  return {
    created: Math.floor((finishedAtMs ?? batch.createdAtMs) / 1000),
    data: [{ b64_json: "" }],
    ...imageFacts(output, output.mimeType),
    usage: usageView(usageOf({ model, prompt, size, inputImages, outputImages: 1 })),
  };
}

/** Why a request was not run at all; null when it has an outcome of its own. */
function notRunOf(batch: BatchRecord, error: ItemError | null): { code: string; message: string } | null {
  if (error === null) return null;
  if (error.code === "CANCELLED") return { code: "batch_cancelled", message: error.message };
  if (batch.input?.simulatedEnd !== "expired") return null;
  return { code: "batch_expired", message: error.message };
}

/** The parameter of a line that could not be read stands before its problem. */
function errorOf({ code, message }: ItemError): ImgbatchError {
  const param = code === "INVALID_ARGUMENT" ? /^([\w[\].]+): /.exec(message)?.[1] : undefined;
  return new ImgbatchError(CODES[code] ?? "REALTIME_PROVIDER_FAILED", message, { param });
}
