import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { BatchSource } from "../../contract/statuses.ts";
import { type Caller, type CreateBatchDeps, newBatch } from "../batches/create-batch.ts";
import { openBatch } from "../batches/lifecycle.ts";
import { inputsPrefix } from "../batches/write-items.ts";
import { NO_NEEDS } from "../checked-content.ts";
import { commitOrUndo } from "../commit-or-undo.ts";
import type { SentImage } from "../images/sent-image.ts";
import { type ModelEntry, pricedSizes } from "../models.ts";
import type { BlobDraft } from "../ports/blob-store.ts";
import type { Transaction } from "../ports/stores.ts";
import type { BatchRecord } from "../records.ts";

interface JobRequest {
  source: BatchSource;
  model: ModelEntry;
  /** Null when the caller gave none. */
  name: string | null;
  metadata?: Record<string, string> | null;
  /** Kept with the input. */
  facts?: Pick<NonNullable<BatchRecord["input"]>, "resultsKeptMs" | "origin">;
  /**
   * Looks for a batch that an equal request has made meanwhile, which is returned then, in the transaction that would write
   * another one. It has locked the key, so no process makes one at the same time.
   */
  findMade?(tx: Transaction): Promise<BatchRecord | null>;
  /** Called in that transaction for a batch that it writes. */
  onMade?(tx: Transaction, batch: BatchRecord): Promise<void>;
  /** A file of the caller, or lines to keep. */
  input: { fileName: string; blobKey: string } | { lines: Iterable<LineText> };
}

/** A line in pieces: JSON without line breaks, and images that are written as Base64. */
export type LineText = readonly (string | SentImage)[];

/**
 * Accepts a batch job. Its lines are checked, stored and paid for by a worker: see `takeIn`. Throws
 * `BATCH_IMAGE_SETTLEMENT_PRICING_MISSING`, `BATCH_IMAGE_NO_ACCOUNT_AVAILABLE`, `BATCH_IMAGE_QUEUE_FAILED`, and
 * `JOB_LIMIT_REACHED` when too many jobs of the key have not ended.
 */
export async function createJob(
  deps: CreateBatchDeps,
  caller: Caller,
  { source, model, name, metadata = null, facts, findMade, onMade, input }: JobRequest,
): Promise<BatchRecord> {
  const asked = { model, taskName: name, size: pricedSizes(model)[0] };
  const { payer, batch: opened } = await newBatch(deps, caller, asked);
  const { id, createdAtMs: nowMs } = opened;
  const ownKey = `${inputsPrefix(id)}lines`;
  const batch: BatchRecord = {
    ...opened,
    mimeType: "image/png",
    parentBatchId: null,
    metadata,
    itemCount: 0,
    estimatedMicroUsd: 0,
    holdMicroUsd: 0,
    needs: NO_NEEDS,
    inputsPurgedAtMs: null,
    source,
    input: {
      fileName: "lines" in input ? null : input.fileName,
      blobKey: ownKey,
      consentMicroUsd: payer.consentMicroUsd,
      ...facts,
    },
  };
  const dropInputs = () => deps.blobs.deleteAll(inputsPrefix(id));
  if ("lines" in input) await keepLines(deps, ownKey, input.lines);
  else await keepFile(deps, ownKey, input);
  const made = await commitOrUndo(
    () =>
      deps.stores.write(async (tx) => {
        await tx.lock("key", caller.key.id);
        const earlier = await findMade?.(tx);
        if (earlier) return earlier;
        if ((await tx.batches.countUnended(caller.key.id, source)) >= FIXED_LIMITS.runningJobsPerKey) {
          throw new ImgbatchError("JOB_LIMIT_REACHED");
        }
        await openBatch(tx, batch, nowMs);
        await onMade?.(tx, batch);
        return batch;
      }),
    dropInputs,
  );
  if (made !== batch) await dropInputs().catch(() => {});
  return made;
}

/** Keeps the bytes of a file for the job: the file may be deleted, or expire, before they are read. */
async function keepFile(
  { blobs }: CreateBatchDeps,
  key: string,
  { fileName, blobKey }: { fileName: string; blobKey: string },
): Promise<void> {
  const draft = await blobs.borrow(blobKey);
  if (draft === null) {
    throw new ImgbatchError("JOB_FILE_UNUSABLE", `The file ${fileName} does not exist any more.`);
  }
  try {
    await draft.keepAs(key);
  } finally {
    await draft.discard();
  }
}

async function keepLines({ blobs }: CreateBatchDeps, key: string, lines: Iterable<LineText>): Promise<void> {
  const draft = blobs.draft();
  try {
    for (const line of lines) {
      for (const piece of [...line, "\n"]) {
        if (typeof piece === "string") await draft.write(Buffer.from(piece));
        else await piece.lend((bytes) => writeBase64(draft, bytes));
      }
    }
    await draft.keepAs(key);
  } finally {
    await draft.discard();
  }
}

/** A multiple of 3: only the end of a text has padding. */
const STEP_BYTES = 192 * 1024;

async function writeBase64(draft: BlobDraft, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length; at += STEP_BYTES)
    await draft.write(Buffer.from(bytes.toString("base64", at, at + STEP_BYTES)));
}
