import type { GeneratedFile } from "../../../domain/files/generated.ts";
import type { ApiDeps } from "../../deps.ts";
import { linesFile } from "../../jobs/lines-file.ts";
import { hasResults, ownJob } from "../../jobs/own-job.ts";
import { resultLines } from "../../jobs/result-lines.ts";
import { batchOfResultFile } from "./job-id.ts";
import { resultLine } from "./result-line.ts";

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
