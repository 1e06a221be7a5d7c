import type { Request } from "express";
import { fieldError } from "../request-problems.ts";

const MAX_PAGE = 1000;

export interface Page<T> {
  entries: readonly T[];
  /** Empty on the last page. */
  next: { nextPageToken?: string };
}

/**
 * The part of a list that `pageSize` and `pageToken` ask for. See `pageSizeOf`.
 * Throws `REALTIME_INVALID_ARGUMENT`.
 */
export function pageOf<T>(all: readonly T[], request: Request, defaultSize: number): Page<T> {
  const size = pageSizeOf(request, defaultSize, MAX_PAGE);
  const start = wholeNumber(request, "pageToken", "page_token");
  if (start > all.length) throw invalid("pageToken", "is not one that this list gave");
  const end = start + size;
  return { entries: all.slice(start, end), next: end < all.length ? { nextPageToken: String(end) } : {} };
}

/** Size 0 means the default; a size above the maximum means the maximum. Throws `REALTIME_INVALID_ARGUMENT`. */
export function pageSizeOf(request: Request, defaultSize: number, max: number): number {
  return Math.min(wholeNumber(request, "pageSize", "page_size") || defaultSize, max);
}

/** A parameter of a list in either spelling; 0 when it is missing. Throws `REALTIME_INVALID_ARGUMENT`. */
export function wholeNumber(request: Request, name: string, otherName: string): number {
  const text = request.query[name] ?? request.query[otherName];
  if (text === undefined || text === "") return 0;
  if (typeof text !== "string" || !/^\d{1,9}$/.test(text)) throw invalid(name, "must be one whole number");
  return Number(text);
}

const invalid = (param: string, problem: string) => fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
