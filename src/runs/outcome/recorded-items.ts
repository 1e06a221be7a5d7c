import type { BatchItem } from "../../client/wire/read-items.ts";
import type { ResultLine } from "../directory/results-file.ts";
import { retriedId } from "../retry/retried-id.ts";

/** Returns the items of a batch as the results of an earlier command have them, when the service has no list any more. */
export function recordedItems(lines: readonly ResultLine[], batchId: string, isRetry: boolean): BatchItem[] {
  return lines.filter((line) => line.batch_id === batchId).map((line) => toItem(line, isRetry));
}

function toItem(line: ResultLine, isRetry: boolean): BatchItem {
  const { custom_id, status, files, error, provider, model_version, seed, upstream_cost, notes } = line;
  const facts = Object.entries({ provider, model_version, seed, upstream_cost, notes });
  const known = Object.fromEntries(facts.filter(([, value]) => value !== undefined));
  const isMade = status === "success";
  const imageCount = isMade ? Math.max(1, files.length) : 0;
  return {
    customId: isRetry ? retriedId(custom_id) : custom_id,
    status,
    mimeType: files[0]?.mime_type ?? null,
    imageCount,
    promptPreview: null,
    error: isMade ? null : (error ?? null),
    facts: known,
    raw: { ...known, status, image_count: imageCount, ...(isMade || error === undefined ? {} : { error }) },
  };
}
