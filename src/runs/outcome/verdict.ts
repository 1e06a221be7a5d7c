import type { ExitName } from "../../contract/exit-codes.ts";
import type { RunOutcome } from "./collect-run.ts";
import { isFailed, isMissing } from "./image-outcome.ts";

/** The most failed images with which a run still counts as successful: a number, or a share of all. */
export type Allowance = { count: number } | { share: number };

/** Reads `3` or `5%`; null when it is neither. */
export function parseAllowance(text: string): Allowance | null {
  const [, digits, percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(text.trim()) ?? [];
  const value = Number(digits);
  if (digits === undefined || (percent === "%" ? value > 100 : !Number.isInteger(value))) return null;
  return percent === "%" ? { share: value / 100 } : { count: value };
}

export interface Counts {
  total: number;
  success: number;
  failed: number;
}

export interface ImageCounts extends Counts {
  /** Missing although they have not failed: see `isMissing`. */
  missing: number;
}

export function countImages({ lines }: Pick<RunOutcome, "lines">): ImageCounts {
  const missing = lines.filter(isMissing).length;
  const failed = lines.filter(isFailed).length;
  return { total: lines.length, success: lines.length - missing - failed, failed, missing };
}

/** Returns the exit of an ended run. */
export function verdict(
  counts: Counts,
  statuses: readonly string[],
  allowance: Allowance = { count: 0 },
): Extract<ExitName, "ok" | "someFailed" | "noImages"> {
  if (counts.success === 0) return "noImages";
  if (statuses.some((status) => status === "failed" || status === "cancelled")) return "someFailed";
  const allowed = "count" in allowance ? allowance.count : allowance.share * counts.total;
  return counts.failed > allowed ? "someFailed" : "ok";
}
