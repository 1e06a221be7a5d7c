/** The API that a batch was made with: the batch API, or the batch jobs of the native API or of OpenAI's. */
export const BATCH_SOURCES = ["batch", "native", "openai"] as const;
export type BatchSource = (typeof BATCH_SOURCES)[number];

/** The statuses of a batch, in the order of its life. The last four are terminal. */
export const BATCH_STATUSES = [
  "queued",
  "running",
  "processing_results",
  "settling",
  "completed",
  "failed",
  "cancelled",
  "output_deleted",
] as const;
export type BatchStatus = (typeof BATCH_STATUSES)[number];

/** A batch in one of these statuses does no more work: pollers stop here. */
export const TERMINAL_BATCH_STATUSES: readonly BatchStatus[] = [
  "completed",
  "failed",
  "cancelled",
  "output_deleted",
];

/** Items are made only for a batch in one of these statuses. */
export const MAKING_BATCH_STATUSES: readonly BatchStatus[] = ["queued", "running"];

/** Whether a status is terminal; false for an unknown one, such as another service's. */
export function isTerminal(status: string): boolean {
  return TERMINAL_BATCH_STATUSES.some((each) => each === status);
}

export const ITEM_STATUSES = ["pending", "success", "failed"] as const;
export type ItemStatus = (typeof ITEM_STATUSES)[number];
