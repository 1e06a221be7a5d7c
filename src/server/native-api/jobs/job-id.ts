/**
 * Clients cut the name of a file at the first character that is no letter or digit, so the ids of jobs have no underscore.
 */
const OWN = "imgbatch_";
const RESULT = "batch-";

/** The id of the job of a batch. */
export function jobId(batchId: string): string {
  return batchId.startsWith(OWN) ? batchId.slice(OWN.length) : batchId;
}

/** The batch of a job. */
export function batchOfJob(id: string): string {
  return `${OWN}${id}`;
}

/** The id of the file with the results of a batch. */
export function resultFileId(batchId: string): string {
  return `${RESULT}${jobId(batchId)}`;
}

/** The batch whose results a file has; null for another file. */
export function batchOfResultFile(fileId: string): string | null {
  return fileId.startsWith(RESULT) ? batchOfJob(fileId.slice(RESULT.length)) : null;
}
