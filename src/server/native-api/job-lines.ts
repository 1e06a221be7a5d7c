import { nativeStatus, RPC_CODES } from "../../contract/errors.ts";
import type { ItemErrorCode } from "../../contract/statuses.ts";
import { askedOf } from "../../domain/batches/create-batch.ts";
import type { Piece } from "../../domain/downloads/piece-stream.ts";
import type { LineReader } from "../../domain/jobs/take-in.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { invalidArgument } from "../http/errors.ts";
import { isObject, type LineFormat, type LineRules, lineReader } from "../jobs/lines.ts";
import { type ItemResult, withImages } from "../jobs/results.ts";
import { numberOf } from "../jobs/vendor-jobs.ts";
import { checkContent } from "./check-content.ts";
import { CONTENT_SHAPE, contentBody, contentFormat } from "./generate.ts";

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
      return checkContent(request, model, { ...rules, strictImageConfig, ...given });
    },
  };
  return lineReader(rules, { format: contentFormat(rules.limits, shape), images }, () => format);
}

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
      id: `${numberOf(batch)}-${item.position + 1}`,
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
  return withImages(`{"response":${response}${key}}`, "data", outputs);
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
