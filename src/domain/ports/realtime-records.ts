import type { ErrorCode } from "../../contract/errors.ts";
import type { AspectRatio, ImageMimeType, SizeTier } from "../../contract/image-formats.ts";

/** The hold of a real-time request at work. The record is removed when the hold ends. */
export interface RealtimeHoldRecord {
  /** The request; also the `responseId` of its answer. */
  id: string;
  apiKeyId: string;
  accountId: string;
  amountMicroUsd: number;
  createdAtMs: number;
  /** The worker that answers the request; null in records of a version without workers. */
  worker: string | null;
}

/** An image that was made in real time and can be fetched by its name for some time, without a key. */
export interface LinkedImageRecord {
  /** SHA-256 of the name, as lower-case hexadecimal digits: whoever reads the database learns no name. */
  id: string;
  mimeType: ImageMimeType;
  sizeBytes: number;
  expiresAtMs: number;
}

/** One image that was made in real time, and its price. */
export interface UsageRecord {
  /** The request that made it. */
  realtimeId: string;
  /** From 0. The price of an image that came beside another one is 0. */
  imageIndex: number;
  apiKeyId: string;
  accountId: string;
  /** The model that was asked for, which decides the price, and the one that ran. */
  model: string;
  executedModel: string;
  provider: string;
  size: SizeTier;
  ratio: AspectRatio;
  mimeType: ImageMimeType;
  widthPx: number;
  heightPx: number;
  sizeBytes: number;
  amountMicroUsd: number;
  createdAtMs: number;
}

export interface UsageFilter {
  apiKeyId: string;
  accountIds: readonly string[];
  fromMs: number;
  beforeMs: number;
}

/** The images of a model that a key paid for on a day, from one of its accounts. */
export interface DayUsage {
  accountId: string;
  /** The beginning of the day, in UTC. */
  dayMs: number;
  /** The requested model. */
  model: string;
  imageCount: number;
  amountMicroUsd: number;
}

/** A real-time request with an idempotency key. */
export interface KeyedRequestRecord {
  apiKeyId: string;
  /** The key of the caller. */
  key: string;
  /** SHA-256 over everything that was asked for, in lower-case hexadecimal. */
  fingerprint: string;
  /** The last run: the id of its hold. */
  realtimeId: string;
  /** How many runs an upstream may have been paid for. */
  paidRuns: number;
  /** Null until a run has finished. */
  answer: KeyedAnswerRecord | null;
  /** Then the sweep may remove the record. */
  expiresAtMs: number;
}

/** The body of a success, whose bytes are a blob; or an error that is final. */
export type KeyedAnswerRecord = { sha256: string } | { error: KeptError };

export interface KeptError {
  code: ErrorCode;
  message: string;
}
