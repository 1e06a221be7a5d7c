import { AwsV4Signer } from "aws4fetch";
import { StorageUnavailable } from "../../../domain/ports/blob-store.ts";
import {
  type Answer,
  beginningOf,
  ConnectionError,
  Connections,
  type StreamedBody,
  send,
} from "../../../http/transport.ts";
import { type Clock, systemClock } from "../../../kernel/clock.ts";
import { backoffMs } from "../../../kernel/pacing.ts";
import { systemCodeOf } from "../../../kernel/system-errors.ts";
import type { S3Keys } from "./role-keys.ts";

interface BucketPlace {
  bucket: string;
  /** Like `https://minio.example:9000`; default: Amazon's own for the region. */
  endpoint?: string | undefined;
  region: string;
}

/**
 * Returns the URL of a bucket, with a slash at its end. The host name contains the bucket only at Amazon. Elsewhere the
 * path does, and always for a name with dots: no certificate matches such a host name.
 */
export function bucketUrl({ bucket, endpoint, region }: BucketPlace): string {
  if (endpoint !== undefined) return `${endpoint.replace(/\/+$/, "")}/${encodePath(bucket)}/`;
  if (bucket.includes(".")) return `https://s3.${region}.amazonaws.com/${encodePath(bucket)}/`;
  return `https://${bucket}.s3.${region}.amazonaws.com/`;
}

/** Encodes each segment as signatures need it: everything but letters, digits and `-._~` (RFC 3986, section 2.3). */
function encodePath(path: string): string {
  return path.split("/").map(encodeStrictly).join("/");
}

/** A query in the order and the form that is signed. */
function encodeQuery(query: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(query).sort(([a], [b]) => (a < b ? -1 : 1));
  return pairs.map(([name, value]) => `${encodeStrictly(name)}=${encodeStrictly(value)}`).join("&");
}

function encodeStrictly(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** One page of a list of objects. */
interface ObjectPage {
  objects: { key: string; sizeBytes: number; changedAtMs: number }[];
  /** Where the next page begins; null on the last page. */
  next: string | null;
}

/** Reads an answer to `ListObjectsV2` with `encoding-type=url`. Throws for anything else, and for one that is not whole. */
export function readPage(text: string): ObjectPage {
  if (!/<ListBucketResult[\s>]/.test(text) || !text.trimEnd().endsWith("</ListBucketResult>"))
    throw notAList();
  const isEncoded = tag(text, "EncodingType") === "url";
  const objects = [...text.matchAll(/<Contents>(.*?)<\/Contents>/gs)].map(([, entry = ""]) => {
    const name = tag(entry, "Key");
    const [sizeBytes, changedAtMs] = [
      Number(tag(entry, "Size")),
      Date.parse(tag(entry, "LastModified") ?? ""),
    ];
    if (name === null || !Number.isSafeInteger(sizeBytes) || Number.isNaN(changedAtMs)) throw notAList();
    return { key: isEncoded ? decodeURIComponent(name.replaceAll("+", " ")) : name, sizeBytes, changedAtMs };
  });
  const next = tag(text, "NextContinuationToken");
  const isTruncated = tag(text, "IsTruncated") === "true";
  if (isTruncated && next === null) throw notAList();
  return { objects, next: isTruncated ? next : null };
}

/** Returns the code of an error answer, like `SlowDown`, or null. */
function readErrorCode(text: string): string | null {
  const code = tag(text, "Code") ?? "";
  return /^[A-Za-z0-9._-]{1,64}$/.test(code) ? code : null;
}

/** The text of the first element of this name that has no elements in it. */
function tag(text: string, name: string): string | null {
  const content = new RegExp(`<${name}>([^<]*)</${name}>`).exec(text)?.[1];
  return content === undefined ? null : decodeEntities(content);
}

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function decodeEntities(text: string): string {
  return text.replace(/&(?:#x([0-9a-f]{1,6})|#([0-9]{1,7})|([a-z]+));/gi, (all, hex, decimal, name) => {
    if (name !== undefined) return ENTITIES[name] ?? all;
    const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
    return code <= 0x10ffff ? String.fromCodePoint(code) : all;
  });
}

const notAList = () => Object.assign(new Error("the list of objects cannot be read"), { code: "BAD_LIST" });

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
function isPassing(error: unknown): boolean {
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

export interface ConnectionSettings extends BucketPlace {
  /** Left out with `secretAccessKey` where `roleKeys` has them. */
  accessKeyId?: string | undefined;
  secretAccessKey?: string | undefined;
  sessionToken?: string | undefined;
  /** The keys of a role, which expire and are others then: asked for each request. */
  roleKeys?: (() => Promise<S3Keys>) | undefined;
  /** How long the server may be silent, or slower than 8 KiB/s, before an attempt ends, in ms. Default: 10,000. */
  silenceMs?: number | undefined;
  /** For the pauses between attempts. Default: the system's. */
  clock?: Clock | undefined;
  /**
   * When it aborts, all requests end, and later ones reject at once; only a connection that is still being made may take
   * seconds. Default: never.
   */
  closed?: AbortSignal | undefined;
}

interface S3Request {
  method: "GET" | "HEAD" | "PUT" | "DELETE";
  url: string;
  headers?: Readonly<Record<string, string>>;
  body?: Buffer | StreamedBody;
}

const ATTEMPTS = 8;
/** No attempt begins later than this after the first. */
const GIVE_UP_MS = 30_000;
const BACKOFF = { baseMs: 100, capMs: 5_000 };
const CONNECTIONS = 32;
const MAX_ERROR_BYTES = 64 * 1024;
const NEVER = new AbortController().signal;
const NO_BYTES_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/** Whether the error ends the attempts: returns it as callers get it, or null when attempt `attempt + 1` may begin. */
export function lastError(error: unknown, attempt: number): unknown | null {
  return isPassing(error) && attempt < ATTEMPTS ? null : unavailable(error);
}

/** Signed requests to one S3 server. Every request is one that may be repeated, and is. */
export class S3Connection {
  readonly #connections = new Connections({ most: CONNECTIONS });
  readonly #signing: Pick<ConstructorParameters<typeof AwsV4Signer>[0], "service" | "region" | "cache">;
  readonly #keys: () => Promise<S3Keys>;
  readonly #bucketUrl: string;
  readonly #silenceMs: number;
  readonly #clock: Clock;
  readonly #closed: AbortSignal | undefined;

  constructor(settings: ConnectionSettings) {
    this.#bucketUrl = bucketUrl(settings);
    const { region, accessKeyId = "", secretAccessKey = "", sessionToken, roleKeys } = settings;
    this.#signing = { service: "s3", region, cache: new Map() };
    this.#keys = roleKeys ?? (async () => ({ accessKeyId, secretAccessKey, sessionToken }));
    this.#silenceMs = settings.silenceMs ?? 10_000;
    this.#clock = settings.clock ?? systemClock;
    this.#closed = settings.closed;
    this.#closed?.addEventListener("abort", () => void this.#connections.close(), { once: true });
  }

  /** Returns the URL of an object by its name; of the bucket itself for an empty one. */
  urlOf(name: string, query?: Readonly<Record<string, string>>): string {
    return this.#bucketUrl + encodePath(name) + (query ? `?${encodeQuery(query)}` : "");
  }

  /** Resolves before attempt number `attempt + 1`. */
  pauseAfter(attempt: number): Promise<void> {
    return this.#clock.sleep(backoffMs(attempt, BACKOFF, Math.random), this.#closed).catch(() => {});
  }

  /**
   * Sends a request, again when that may help, and reads an answer below 300 with `use`, which is called again then, too. Rejects with
   * `StorageUnavailable` after some seconds, or with `S3Error` for a status in `expected`.
   */
  async send<T>(
    sent: S3Request,
    use: (answer: Answer) => Promise<T>,
    expected: readonly number[] = [],
  ): Promise<T> {
    const begunAtMs = this.#clock.monotonicMs();
    for (let attempt = 1; ; attempt++) {
      try {
        return await use(await this.#once(sent));
      } catch (error) {
        if (error instanceof S3Error && expected.includes(error.status)) throw error;
        const isLate = this.#closed?.aborted || this.#clock.monotonicMs() - begunAtMs > GIVE_UP_MS;
        const last = lastError(error, isLate ? ATTEMPTS : attempt);
        if (last !== null) throw last;
        await this.pauseAfter(attempt);
      }
    }
  }

  async #once({ method, url, headers = {}, body }: S3Request): Promise<Answer> {
    const named = { "x-amz-content-sha256": NO_BYTES_SHA256, ...headers };
    const { accessKeyId, secretAccessKey, sessionToken } = await this.#keys();
    const token = sessionToken === undefined ? {} : { sessionToken };
    const keys = { accessKeyId, secretAccessKey, ...token };
    const signed = await new AwsV4Signer({ ...this.#signing, ...keys, method, url, headers: named }).sign();
    const sending = {
      method,
      headers: { "accept-encoding": "identity", ...Object.fromEntries(signed.headers) },
      body,
      // Closing the store closes its connections, which ends all requests.
      signal: NEVER,
      silenceMs: this.#silenceMs,
    };
    const answer = await send(signed.url, sending, this.#connections);
    if (answer.status < 300) return answer;
    const text = (await beginningOf(answer.body, MAX_ERROR_BYTES)).toString("latin1");
    throw new S3Error(`${method} ${new URL(url).pathname}`, answer.status, readErrorCode(text));
  }
}
