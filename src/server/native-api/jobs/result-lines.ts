import { setImmediate } from "node:timers/promises";
import type { ItemErrorCode } from "../../../contract/item-errors.ts";
import { jobDirectivesOf } from "../../../contract/job-directives.ts";
import { nativeStatus, RPC_CODES } from "../../../contract/native-api/errors.ts";
import { askedOf } from "../../../domain/batches/item-terms.ts";
import type { Piece } from "../../../domain/downloads/piece-stream.ts";
import { DRAWINGS } from "../../../domain/offers.ts";
import type { Stores } from "../../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord, OutputRecord } from "../../../domain/records.ts";
import { contentBody } from "../response/content-view.ts";
import { jobId } from "./job-id.ts";

const PAGE = 500;
const NO_DATA = '"data":""';

/**
 * Returns the results of an ended batch in the order of its lines, each as a JSON object. `keyField` is the field in which
 * the client's name of the line comes back.
 */
export async function resultLines(
  { read }: Stores,
  batch: BatchRecord,
  keyField: "key" | "metadata",
): Promise<Piece[][]> {
  const outputs = new Map<number, OutputRecord[]>();
  for (const output of await read.outputs.ofBatch(batch.id)) {
    outputs.set(output.itemId, [...(outputs.get(output.itemId) ?? []), output]);
  }
  const inputImages = await read.references.countBySource(batch.id);
  const lines: Piece[][] = [];
  const isDrawn = batch.upstream === DRAWINGS;
  let isShuffled = false;
  for (let afterPosition = -1; ; ) {
    const items = await read.items.page(batch.id, { afterPosition, limit: PAGE });
    for (const item of items) {
      afterPosition = item.position;
      const asked = isDrawn ? jobDirectivesOf(item.prompt) : NOTHING_ASKED;
      isShuffled ||= asked.has("lines-shuffled");
      if (asked.has("line-lost") || isLost(batch, item)) continue;
      const made = outputs.get(item.id) ?? [];
      const line = resultLine(batch, item, made, inputImages.get(item.sourceIndex) ?? 0, keyField);
      lines.push(line);
      if (asked.has("line-twice")) lines.push(line);
    }
    if (items.length < PAGE) return isShuffled ? lines.reverse() : lines;
    await setImmediate();
  }
}

const NOTHING_ASKED: ReturnType<typeof jobDirectivesOf> = new Map();

/** A job that fails with a part of its results leaves the others out. */
function isLost({ input }: BatchRecord, { error }: ItemRecord): boolean {
  return Boolean(input?.simulatedEnd) && error?.code === "RESULT_MISSING";
}

function resultLine(
  batch: BatchRecord,
  item: ItemRecord,
  outputs: readonly OutputRecord[],
  inputImages: number,
  keyField: string,
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
