import { nativeStatus, RPC_CODES } from "../../../contract/errors.ts";
import type { ItemErrorCode } from "../../../contract/statuses.ts";
import { askedOf } from "../../../domain/batches/item-terms.ts";
import type { Piece } from "../../../domain/downloads/piece-stream.ts";
import type { BatchRecord } from "../../../domain/records.ts";
import type { ItemResult } from "../../jobs/result-lines.ts";
import { contentBody } from "../response/content-view.ts";
import { jobId } from "./job-id.ts";

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
