import { isTerminal } from "../../contract/statuses.ts";
import type { GeneratedFile } from "../../domain/files/generated.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ApiDeps } from "../deps.ts";
import { linesFile } from "../jobs/lines-file.ts";
import { hasResults, ownJob } from "../jobs/own-job.ts";
import { resultLines } from "../jobs/result-lines.ts";
import { batchOfResultFile, type ResultKind, resultFileId } from "./ids.ts";
import { resultLine } from "./result-line.ts";

/** A batch of which a file has results. */
export interface ResultOf {
  kind: ResultKind;
  batch: BatchRecord;
}

/** Returns which results a file id of this key stands for; null for every other id, and for a file that was deleted. */
export async function findResult(
  { stores }: Pick<ApiDeps, "stores">,
  keyId: string,
  fileId: string,
): Promise<ResultOf | null> {
  const named = batchOfResultFile(fileId);
  const batch = named && (await ownJob(stores, keyId, "openai", named.batchId));
  if (!named || !batch || resultIdOf(batch, named.kind) === null) return null;
  return { kind: named.kind, batch };
}

/** Returns the id of a file with results of a batch; null when it has none. */
export function resultIdOf(batch: BatchRecord, kind: ResultKind): string | null {
  const { successCount, failCount, input } = batch;
  // Errors need no image: they outlast the images.
  const exists =
    kind === "output"
      ? hasResults(batch) && successCount > 0
      : isTerminal(batch.status) && failCount > 0 && !input?.openai?.areErrorsDeleted;
  return exists ? resultFileId(kind, batch.id) : null;
}

/** Returns the download of the results of a batch: JSON lines, whose size is known before the first byte. */
export async function resultFile(
  deps: Pick<ApiDeps, "stores" | "blobs">,
  keyId: string,
  fileId: string,
): Promise<GeneratedFile | null> {
  const found = await findResult(deps, keyId, fileId);
  if (found === null) return null;
  const { batch, kind } = found;
  const isAsked = (hasError: boolean) => hasError === (kind === "errors");
  const lines = await resultLines(deps.stores, batch, (result) =>
    isAsked(result.item.error !== null) ? resultLine(batch, result) : null,
  );
  return linesFile(deps.blobs, batch, fileId, lines);
}
