import { pieceBytes, pieceStream } from "../../../domain/downloads/piece-stream.ts";
import type { GeneratedFile } from "../../../domain/files/generated.ts";
import { sha256Hex } from "../../../kernel/ids.ts";
import type { ApiDeps } from "../../deps.ts";
import { hasResults, jobBatch } from "./find-job.ts";
import { batchOfResultFile } from "./job-id.ts";
import { resultLines } from "./result-lines.ts";

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
  const batch = batchId && (await jobBatch(deps.stores, keyId, batchId));
  if (!batch || !hasResults(batch) || batch.input?.fileName == null) return null;
  const lines = await resultLines(deps.stores, batch, "key");
  const pieces = lines.flatMap((line) => [...line, "\n"]);
  const sizeBytes = pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0);
  return {
    sizeBytes,
    // What has ended does not change.
    etag: sha256Hex(`${batch.id} ${batch.endedAtMs} ${sizeBytes}`).slice(0, 32),
    mimeType: "application/jsonl",
    open: (range) => pieceStream(deps.blobs, pieces, range),
  };
}
