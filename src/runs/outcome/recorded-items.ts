import type { BatchItem, ItemFacts } from "../../client/wire/read-items.ts";
import type { ResultLine } from "../directory/results-file.ts";
import { retriedId } from "../retry/retried-id.ts";
import { isFailed } from "./image-outcome.ts";

/**
 * Returns the items of a batch as the results of an earlier command have them, when the service has no list of them. An item
 * that had no outcome then is left out.
 */
export function recordedItems(lines: readonly ResultLine[], batchId: string, isRetry: boolean): BatchItem[] {
  const hasEnded = (line: ResultLine) => line.status === "success" || isFailed(line);
  return lines
    .filter((line) => line.batch_id === batchId && hasEnded(line))
    .map((line) => toItem(line, isRetry));
}

/** Returns the facts of an item that its line has. */
export function factsOf({ provider, model_version, seed, upstream_cost, notes }: ResultLine): ItemFacts {
  const facts = Object.entries({ provider, model_version, seed, upstream_cost, notes });
  return Object.fromEntries(facts.filter(([, value]) => value !== undefined));
}

function toItem(line: ResultLine, isRetry: boolean): BatchItem {
  const { custom_id, status, files, error } = line;
  const known = factsOf(line);
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
