import { StorageUnavailable } from "../../../domain/ports/blob-store.ts";
import { ConnectionError } from "../../../http/transport.ts";
import { systemCodeOf } from "../../../kernel/files/disk-full.ts";

/** Codes of answers below 500 that another attempt can change: they are about this transfer. */
const PASSING = new Set([
  "RequestTimeout",
  "IncompleteBody",
  "BadDigest",
  "XAmzContentSHA256Mismatch",
  "XAmzContentChecksumMismatch",
  "OperationAborted",
  "ConditionalRequestConflict",
]);

const FULL = new Set(["QuotaExceeded", "StorageFull", "XMinioStorageFull", "InsufficientCapacity"]);

/** The usual codes in words, for whoever runs the service. */
const WORDS: Readonly<Record<string, string>> = {
  NoSuchBucket: "there is no such bucket",
  AccessDenied: "these keys may not do that",
  InvalidAccessKeyId: "AWS_ACCESS_KEY_ID is not known there",
  SignatureDoesNotMatch: "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID",
  ExpiredToken: "the keys have expired",
  InvalidToken: "AWS_SESSION_TOKEN is not valid",
  RequestTimeTooSkewed: "the clock of this machine is wrong",
  PermanentRedirect: "the bucket is in another region",
  AuthorizationHeaderMalformed: "the bucket is in another region",
};

/** An answer that reports an error. Its message names no secret: nothing of the answer but the code is in it. */
export class S3Error extends Error {
  readonly status: number;
  /** Like `SlowDown`, or `HTTP_502` for an answer that is not of an S3 server. */
  readonly code: string;

  constructor(what: string, status: number, code: string | null) {
    const name = code ?? `HTTP_${status}`;
    const words = WORDS[name];
    super(`S3 answered ${name} to ${what}${words === undefined ? "" : `: ${words}`}`);
    this.name = "S3Error";
    this.status = status;
    this.code = name;
  }
}

/** The object was deleted while it was read. */
export class ObjectGone extends Error {}

/** Whether another attempt may succeed: the server is overloaded, the network failed, or the transfer was damaged. */
export function isPassing(error: unknown): boolean {
  if (error instanceof StorageUnavailable || error instanceof ObjectGone) return false;
  if (!(error instanceof S3Error))
    return error instanceof ConnectionError || systemCodeOf(error) !== "unknown";
  const { status, code } = error;
  if (FULL.has(code)) return false;
  return status >= 500 || status === 429 || status === 408 || PASSING.has(code);
}

/** Turns an error of the last attempt into one for callers. An error of the program stays as it is. */
export function unavailable(cause: unknown): unknown {
  const code = systemCodeOf(cause);
  if (cause instanceof StorageUnavailable || cause instanceof ObjectGone) return cause;
  if (code === "unknown" && !(cause instanceof ConnectionError)) return cause;
  if (FULL.has(code)) return new StorageUnavailable("full", "The service's object storage is full.", cause);
  const message = `The service cannot use its object storage now (${code}).`;
  return new StorageUnavailable("broken", message, cause);
}
