const OWN = "imgbatch_";
const SHOWN = "batch_";

/** The files that the service makes of an ended batch. */
export type ResultKind = "output" | "errors";

/** The id of a batch in OpenAI's API. */
export function openaiBatchId(batchId: string): string {
  return batchId.replace(OWN, SHOWN);
}

/** The batch of such an id; it may not exist. */
export function batchOfOpenaiId(id: string): string {
  return id.startsWith(SHOWN) ? OWN + id.slice(SHOWN.length) : "";
}

/** The id of a file with results: `output-…` or `errors-…`. */
export function resultFileId(kind: ResultKind, batchId: string): string {
  return `${kind}-${batchId.replace(OWN, "")}`;
}

/** The batch whose results a file has; null for another file. */
export function batchOfResultFile(fileId: string): { kind: ResultKind; batchId: string } | null {
  const [, kind, rest] = /^(output|errors)-(\w+)$/.exec(fileId) ?? [];
  return kind === undefined ? null : { kind: kind as ResultKind, batchId: OWN + rest };
}
