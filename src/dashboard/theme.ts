import type { LogLevel } from "../contract/activity.ts";
import type { BatchStatus, ItemStatus } from "../contract/statuses.ts";

/** A sign, a word and a colour. Sign and word carry the meaning; the colour only helps. */
export interface Mark {
  sign: string;
  word: string;
  color?: string;
}

export const STATUS_MARKS: Record<BatchStatus, Mark> = {
  queued: { sign: "·", word: "queued" },
  running: { sign: "»", word: "running", color: "cyan" },
  processing_results: { sign: "»", word: "checking", color: "cyan" },
  settling: { sign: "»", word: "settling", color: "cyan" },
  completed: { sign: "✓", word: "completed", color: "green" },
  failed: { sign: "×", word: "failed", color: "red" },
  cancelled: { sign: "–", word: "cancelled", color: "yellow" },
  output_deleted: { sign: "–", word: "deleted", color: "gray" },
};

/** The mark of a running batch whose provider cannot be asked now. */
export const WAITING_MARK: Mark = { sign: "!", word: "waiting", color: "yellow" };

export const ITEM_MARKS: Record<ItemStatus, Mark> = {
  pending: { sign: "·", word: "pending" },
  success: { sign: "✓", word: "success", color: "green" },
  failed: { sign: "×", word: "failed", color: "red" },
};

export const LEVEL_MARKS: Record<LogLevel, Mark> = {
  error: { sign: "×", word: "error", color: "red" },
  warn: { sign: "!", word: "warn", color: "yellow" },
  info: { sign: " ", word: "info" },
  debug: { sign: " ", word: "debug", color: "gray" },
};

export const ACCENT = "cyan";
