import { createHash, type Hash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { crc32 } from "node:zlib";
import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  type ListObjectsV2CommandOutput,
  PutObjectCommand,
  S3Client,
  S3ServiceException,
} from "@aws-sdk/client-s3";
import { defaultProvider } from "@aws-sdk/credential-provider-node";
import { buildQueryString, type HttpRequest } from "@smithy/core/protocols";
import PQueue from "p-queue";
import { ImgbatchError } from "../../contract/errors.ts";
import { type BlobStore, type ListedBlob, StorageUnavailable } from "../../domain/ports/blob-store.ts";
import { beginningOf, boundedBytes, ConnectionError, Connections, send } from "../../http/transport.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { backoffMs } from "../../kernel/pacing.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import { fileDraft } from "./file-draft.ts";
import { LentMemory, readFully } from "./file-reading.ts";

/** Returns what requests to S3 are signed with. */
type RoleKeys = ReturnType<typeof defaultProvider>;

interface S3Settings {
  bucket: string;
  /** Before every key, without slashes at its ends; may be empty. */
  prefix: string;
  /** Like `https://minio.example:9000`, where the path contains the bucket. Default: Amazon's own for the region. */
  endpoint?: string | undefined;
  region: string;
  /** Left out with `secretAccessKey` where `roleKeys` has them. */
  accessKeyId?: string | undefined;
  secretAccessKey?: string | undefined;
  sessionToken?: string | undefined;
  /** The keys of a role, which expire and are others then: asked for each request. */
  roleKeys?: RoleKeys | undefined;
  /** For drafts, and for copies of what is read in any order. Belongs to this process alone. */
  scratchDirectory: string;
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

const DELETIONS_AT_ONCE = 8;
/** Writing them makes the file of a draft. */
const NO_BYTES = Buffer.alloc(0);

/**
 * Blobs as objects of an S3 bucket, below a prefix. Everything is repeated for some seconds when the server or the
 * network fails. Objects that are lent, borrowed, or read in any order are copied into a local file first, so that
 * they stay when the object is deleted.
 */
export function s3Blobs(settings: S3Settings): BlobStore {
  const bucket = new Bucket(settings);
  const memory = new LentMemory();
  const newDraft = () => {
    const path = join(settings.scratchDirectory, randomBytes(12).toString("hex"));
    return { path, ...fileDraft({ path, move: (key) => putFile(bucket, key, path), memory }) };
  };

  /** Returns a local copy, which the caller must keep or discard; null when there is no such object. */
  const copy = async (key: string) => {
    const draft = newDraft();
    const fill = async (_sizeBytes: number, bytes: AsyncIterable<Buffer>) => {
      await draft.discard();
      await draft.write(NO_BYTES);
      for await (const chunk of bytes) await draft.write(chunk);
      await draft.finish();
      return draft;
    };
    const copied = await bucket.whole(key, fill).catch(async (error) => {
      await draft.discard();
      throw error;
    });
    if (copied === null) await draft.discard();
    return copied;
  };

  return {
    put: async (key, bytes) => {
      const facts = { sizeBytes: bytes.length, sha256: sha256Hex(bytes) };
      await bucket.put(key, { ...facts, body: () => bytes });
      return { ...facts, crc32: crc32(bytes) };
    },
    putNew: (key, bytes) =>
      bucket.putNew(key, { sizeBytes: bytes.length, sha256: sha256Hex(bytes), body: () => bytes }),
    draft: newDraft,
    borrow: copy,
    removeDrafts: () => rm(settings.scratchDirectory, { recursive: true, force: true }),
    read: (key, expectedBytes) =>
      bucket.whole(key, async (sizeBytes, bytes) => {
        if (expectedBytes !== undefined && sizeBytes !== expectedBytes) return null;
        const all = Buffer.allocUnsafeSlow(sizeBytes);
        let at = 0;
        for await (const chunk of bytes) at += chunk.copy(all, at);
        return all;
      }),
    lend: async (key, work) => {
      const draft = await copy(key);
      if (draft === null) return null;
      return draft.lend(work).finally(() => draft.discard());
    },
    open: async (key, range) => {
      const object = await bucket.get(key, range);
      if (object === null) return null;
      return Readable.from(object.bytes(), { objectMode: false }).once("close", () => object.drop());
    },
    reader: async (key) => {
      const draft = await copy(key);
      if (draft === null) return null;
      const file = await open(draft.path).finally(() => draft.discard());
      return { read: (into, at) => readFully(file, into, at), close: () => file.close() };
    },
    sizeOf: (key) => bucket.sizeOf(key),
    list: (prefix) => bucket.list(prefix),
    delete: (key) => bucket.delete(key),
    deleteAll: async (prefix) => {
      const queue = new PQueue({ concurrency: DELETIONS_AT_ONCE });
      const keys = (await bucket.list(prefix)).map(({ key }) => key);
      await queue.addAll(keys.map((key) => () => bucket.delete(key)));
    },
  };
}

async function putFile(bucket: Bucket, key: string, path: string): Promise<void> {
  const { size } = await stat(path);
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk);
  // A generator opens the file only when it is read: the error of a stream that is never read would have no listener.
  const read = async function* () {
    yield* createReadStream(path);
  };
  const body = () => Readable.from(read(), { objectMode: false });
  await bucket.put(key, { sizeBytes: size, sha256: hash.digest("hex"), body });
}

/** An object on its way into the bucket. */
interface Upload {
  sizeBytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  /** Called for each attempt. */
  body: () => Buffer | Readable;
}

interface Range {
  start: number;
  /** Inclusive. */
  end: number;
}

/** An object, or a part of it, on its way here. */
interface Download {
  /** The size of the whole object, in bytes. */
  sizeBytes: number;
  /** Base64; null when the server has none, or for a part. */
  sha256: string | null;
  /** The bytes, once. Goes on with another request where a transfer breaks off. */
  bytes(): AsyncGenerator<Buffer>;
  /** Ends the transfer. */
  drop(): void;
}

/** The answer to one request for an object. */
interface Part {
  body: AsyncIterable<Buffer> | Iterable<Buffer>;
  /** The size of the whole object, in bytes. */
  sizeBytes: number;
  start: number;
  /** Exclusive. */
  end: number;
  etag: string | undefined;
  sha256: string | null;
}

/** The part of an empty object. Servers refuse a range of an object without bytes. */
const EMPTY: Part = { body: [], sizeBytes: 0, start: 0, end: 0, etag: undefined, sha256: null };

const CONNECTIONS = 32;
const ATTEMPTS = 8;
/** No attempt begins later than this after the first. */
const GIVE_UP_MS = 30_000;
const BACKOFF = { baseMs: 100, capMs: 5_000 };
/** An object that differs from the server's own checksum is read this many times. */
const READINGS = 3;
/** Far more than a page of a thousand names takes. A longer answer is not read. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
const MAX_ERROR_BYTES = 64 * 1024;
const NEVER = new AbortController().signal;

/** The objects of a bucket below a prefix. Methods reject with `StorageUnavailable` when the server cannot be used. */
class Bucket {
  readonly #settings: S3Settings;
  readonly #clock: Clock;
  readonly #prefix: string;
  readonly #client: S3Client;
  readonly #connections = new Connections({ most: CONNECTIONS });
  /** How much later it is by the server's clock. */
  #serverAheadMs = 0;

  constructor(settings: S3Settings) {
    const { endpoint, region, accessKeyId = "", secretAccessKey = "", sessionToken, closed } = settings;
    this.#settings = settings;
    this.#clock = settings.clock ?? systemClock;
    this.#prefix = settings.prefix === "" ? "" : `${settings.prefix}/`;
    const fixed = { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) };
    this.#client = new S3Client({
      region,
      credentials: settings.roleKeys ?? fixed,
      ...(endpoint === undefined ? {} : { endpoint, forcePathStyle: true }),
      requestHandler: {
        handle: (request: HttpRequest, options?: { abortSignal?: unknown }) => this.#handle(request, options),
      },
      // Many servers do not know the checksums that the SDK adds of its own accord. Ours is in `#addHeaders`.
      requestChecksumCalculation: "WHEN_REQUIRED",
      // A transfer that breaks off is continued, and only all parts together have the checksum: see `whole`.
      responseChecksumValidation: "WHEN_REQUIRED",
      expectContinueHeader: false,
      cacheMiddleware: true,
      // The SDK cannot repeat a stream, nor end its pauses when the store is closed: see `#send`.
      retryStrategy: { retry: (next, args) => next(args) },
    });
    this.#addHeaders();
    closed?.addEventListener("abort", () => void this.#connections.close(), { once: true });
  }

  /** The object is durable when this resolves. */
  async put(key: string, upload: Upload): Promise<void> {
    await this.#send(`PUT ${key}`, () => this.#client.send(this.#putCommand(key, upload)));
  }

  /** Leaves an object as it is that has the key already. A server that cannot do that replaces it. */
  async putNew(key: string, upload: Upload): Promise<void> {
    const putNew = () => this.#client.send(this.#putCommand(key, upload, { IfNoneMatch: "*" }));
    try {
      await this.#send(`PUT ${key}`, putNew, [412, 501]);
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      // Not implemented there.
      if (error.status === 501) await this.put(key, upload);
    }
  }

  #putCommand(key: string, { sizeBytes, sha256, body }: Upload, more: { IfNoneMatch?: string } = {}) {
    const checksum = Buffer.from(sha256, "hex").toString("base64");
    const content = { Body: body(), ContentLength: sizeBytes, ChecksumSHA256: checksum };
    return new PutObjectCommand({ ...this.#object(key), ...content, ...more });
  }

  /** Null when there is no such object. */
  async get(key: string, range?: Range): Promise<Download | null> {
    const ending = new AbortController();
    const first = await this.#get(key, { range, signal: ending.signal });
    if (first === null) return null;
    const { sizeBytes, sha256 } = first;
    return {
      sizeBytes,
      sha256,
      bytes: () => this.#bytes(key, first, ending.signal),
      drop: () => ending.abort(),
    };
  }

  /** Null when there is no such object. */
  async sizeOf(key: string): Promise<number | null> {
    const head = () => this.#client.send(new HeadObjectCommand(this.#object(key)));
    try {
      const { ContentLength } = await this.#send(`HEAD ${key}`, head, [400, 401, 403, 404]);
      return ContentLength ?? null;
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      // No error of HEAD has a code: the bucket may be what is missing. A list says so.
      return (await this.list(key)).find((blob) => blob.key === key)?.sizeBytes ?? null;
    }
  }

  /**
   * Hands all bytes of an object to `take`, and again from the beginning when they differ from the server's checksum of it.
   * Null when there is no such object, when it differs each time, or as `take` returns it.
   */
  async whole<T>(
    key: string,
    take: (sizeBytes: number, bytes: AsyncIterable<Buffer>) => Promise<T | null>,
  ): Promise<T | null> {
    for (let reading = 1; reading <= READINGS; reading++) {
      const object = await this.get(key);
      if (object === null) return null;
      try {
        const hash = createHash("sha256");
        const result = await take(object.sizeBytes, hashed(object.bytes(), hash));
        if (result === null || object.sha256 === null || hash.digest("base64") === object.sha256)
          return result;
      } catch (error) {
        if (error instanceof ObjectGone) return null;
        throw error;
      } finally {
        object.drop();
      }
    }
    return null;
  }

  /** All objects whose keys begin with this. */
  async list(keyPrefix: string): Promise<ListedBlob[]> {
    const blobs: ListedBlob[] = [];
    const asked = { Bucket: this.#settings.bucket, Prefix: this.#prefix + keyPrefix };
    for (let next: string | undefined, isLast = false; !isLast; ) {
      const command = { ...asked, EncodingType: "url", ContinuationToken: next } as const;
      const page = await this.#send("GET (list)", async () =>
        readPage(await this.#client.send(new ListObjectsV2Command(command))),
      );
      const nowMs = systemClock.nowMs() + this.#serverAheadMs;
      for (const { key, sizeBytes, changedAtMs } of page.objects) {
        // Consoles of some servers make such objects for the directories that they show.
        if (key.endsWith("/")) continue;
        blobs.push({ key: key.slice(this.#prefix.length), sizeBytes, ageMs: nowMs - changedAtMs });
      }
      next = page.next;
      isLast = next === undefined;
    }
    return blobs;
  }

  /** Does nothing when there is no such object. */
  async delete(key: string): Promise<void> {
    const remove = () => this.#client.send(new DeleteObjectCommand(this.#object(key)));
    await this.#send(`DELETE ${key}`, remove, [404]).catch((error) => {
      if (!isMissing(error)) throw unavailable(error);
    });
  }

  #object(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.#settings.bucket, Key: this.#prefix + key };
  }

  async #get(
    key: string,
    { range, etag, signal }: { range?: Range | undefined; etag?: string | undefined; signal: AbortSignal },
  ): Promise<Part | null> {
    const command = {
      ...this.#object(key),
      ...(range && { Range: `bytes=${range.start}-${range.end}` }),
      ...(etag !== undefined && { IfMatch: etag }),
    };
    const get = async () => {
      const answer = await this.#client.send(new GetObjectCommand(command), { abortSignal: signal });
      const body = answer.Body as Readable;
      const { ContentLength: length = Number.NaN, ContentRange = "", ETag, ChecksumSHA256 = "" } = answer;
      // The checksum of a multipart object is a hash of hashes.
      const sha256 = range || !/^[^-]+$/.test(ChecksumSHA256) ? null : ChecksumSHA256;
      const whole = { body, sizeBytes: length, start: 0, end: length, etag: ETag, sha256 };
      const [, start, end, size] = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(ContentRange) ?? [];
      if (start !== undefined && range && Number(start) === range.start && Number(end) <= range.end)
        return { ...whole, sizeBytes: Number(size), start: range.start, end: Number(end) + 1 };
      const isWhole = range === undefined || (range.start === 0 && length <= range.end + 1);
      if (start === undefined && isWhole && Number.isSafeInteger(length)) return whole;
      body.destroy();
      throw unreadable("is not the range that was asked for");
    };
    try {
      return await this.#send(`GET ${key}`, get, [404, 416]);
    } catch (error) {
      if (isMissing(error)) return null;
      if (error instanceof S3Error && error.status === 416 && range?.start === 0) return EMPTY;
      throw unavailable(error);
    }
  }

  async *#bytes(key: string, first: Part, signal: AbortSignal): AsyncGenerator<Buffer> {
    const { end, etag } = first;
    let [{ body }, at] = [first, first.start];
    for (let failures = 0; at < end; ) {
      try {
        for await (const chunk of body) {
          at += chunk.length;
          failures = 0;
          yield chunk;
        }
      } catch (error) {
        if (at >= end) return;
        const last = lastError(error, ++failures);
        if (last !== null) throw last;
        await this.#pauseAfter(failures);
      }
      if (at >= end) return;
      const next = await this.#get(key, { range: { start: at, end: end - 1 }, etag, signal });
      if (next === null) throw new ObjectGone(`${key} was deleted while it was read`);
      body = next.body;
    }
  }

  /** Resolves before attempt number `attempt + 1`. */
  #pauseAfter(attempt: number): Promise<void> {
    return this.#clock.sleep(backoffMs(attempt, BACKOFF, Math.random), this.#settings.closed).catch(() => {});
  }

  /**
   * Sends a request, again when that may help. Rejects with `StorageUnavailable` after some seconds, or with `S3Error` for a
   * status in `expected`.
   */
  async #send<T>(what: string, attempt: () => Promise<T>, expected: readonly number[] = []): Promise<T> {
    const begunAtMs = this.#clock.monotonicMs();
    for (let attempts = 1; ; attempts++) {
      try {
        return await attempt();
      } catch (thrown) {
        const error = withoutAnswer(thrown, what);
        if (error instanceof S3Error && expected.includes(error.status)) throw error;
        const isLate = this.#settings.closed?.aborted || this.#clock.monotonicMs() - begunAtMs > GIVE_UP_MS;
        const last = lastError(error, isLate ? ATTEMPTS : attempts);
        if (last !== null) throw last;
        await this.#pauseAfter(attempts);
      }
    }
  }

  /** Adds what every server checks: the signed hash of a body, also of a stream; and asks for the checksum of an object. */
  #addHeaders(): void {
    this.#client.middlewareStack.add(
      (next) => (args) => {
        const { headers, method } = args.request as HttpRequest;
        const { ChecksumSHA256: checksum } = args.input as { ChecksumSHA256?: string };
        if (checksum !== undefined)
          headers["x-amz-content-sha256"] = Buffer.from(checksum, "base64").toString("hex");
        if (method === "GET" && headers.range === undefined) headers["x-amz-checksum-mode"] = "ENABLED";
        return next(args);
      },
      { step: "build", name: "hashes" },
    );
  }

  /** Sends a signed request of the SDK by the client of this program, which knows silence, and is closed with the store. */
  async #handle(request: HttpRequest, { abortSignal }: { abortSignal?: unknown } = {}) {
    const { protocol, hostname, port, path, query, method, headers, body } = request;
    const search = buildQueryString(query);
    const url = `${protocol}//${hostname}${port === undefined ? "" : `:${port}`}${path}${search && `?${search}`}`;
    const bytes = Number(headers["content-length"]);
    const answer = await send(
      url,
      {
        method,
        headers: { ...headers, "accept-encoding": "identity" },
        body: body instanceof Readable ? { bytes, open: () => body } : body,
        signal: (abortSignal as AbortSignal | undefined) ?? NEVER,
        silenceMs: this.#settings.silenceMs ?? 10_000,
      },
      this.#connections,
    );
    const dateMs = Date.parse(answer.headers.get("date") ?? "");
    if (!Number.isNaN(dateMs)) this.#serverAheadMs = dateMs - systemClock.nowMs();
    const head = { statusCode: answer.status, headers: Object.fromEntries(answer.headers.entries()) };
    if (!answer.ok) return { response: { ...head, body: await beginningOf(answer.body, MAX_ERROR_BYTES) } };
    const isObject = method === "GET" && query["list-type"] === undefined;
    if (isObject) return { response: { ...head, body: Readable.from(answer.body, { objectMode: false }) } };
    const all = await boundedBytes(answer.body, MAX_ANSWER_BYTES);
    if (all === null) throw unreadable("is too long");
    return { response: { ...head, body: all } };
  }
}

/** Reads one page of a list. Throws for an answer that is none: what is not listed seems not to be there. */
function readPage({ Name, Contents = [], EncodingType, ...page }: ListObjectsV2CommandOutput): {
  objects: { key: string; sizeBytes: number; changedAtMs: number }[];
  /** Where the next page begins; undefined on the last page. */
  next: string | undefined;
} {
  const next = page.IsTruncated ? page.NextContinuationToken : undefined;
  if (Name === undefined || (page.IsTruncated && next === undefined)) throw unreadable("is no list");
  const objects = Contents.map(({ Key, Size: sizeBytes = Number.NaN, LastModified }) => {
    const changedAtMs = LastModified?.getTime() ?? Number.NaN;
    if (Key === undefined || !Number.isSafeInteger(sizeBytes) || Number.isNaN(changedAtMs))
      throw unreadable("is no list");
    const key = EncodingType === "url" ? decodeURIComponent(Key.replaceAll("+", " ")) : Key;
    return { key, sizeBytes, changedAtMs };
  });
  return { objects, next };
}

async function* hashed(bytes: AsyncIterable<Buffer>, hash: Hash): AsyncGenerator<Buffer> {
  for await (const chunk of bytes) {
    hash.update(chunk);
    yield chunk;
  }
}

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
class S3Error extends Error {
  readonly status: number;
  /** Like `SlowDown`, or `HTTP_502` for an answer that is not of an S3 server. */
  readonly code: string;

  constructor(what: string, status: number, code: string) {
    const words = WORDS[code];
    super(`S3 answered ${code} to ${what}${words === undefined ? "" : `: ${words}`}`);
    this.name = "S3Error";
    this.status = status;
    this.code = code;
  }
}

/** The object was deleted while it was read. */
class ObjectGone extends Error {}

/** An answer of a server that reports no error, and cannot be used. */
function unreadable(why: string): Error {
  return Object.assign(new Error(`the answer of the object storage ${why}`), { code: "BAD_ANSWER" });
}

/** Puts an error of ours in place of one of the SDK's, which holds the answer: that may quote keys and what is stored. */
function withoutAnswer(thrown: unknown, what: string): unknown {
  const { $metadata, name } = thrown as Partial<S3ServiceException>;
  const status = $metadata?.httpStatusCode;
  if (status === undefined) return thrown;
  if (status < 300) return unreadable("cannot be read");
  const hasCode = thrown instanceof S3ServiceException && /^[A-Za-z][A-Za-z0-9._-]{1,63}$/.test(name ?? "");
  return new S3Error(what, status, hasCode && name ? name : `HTTP_${status}`);
}

/** A missing bucket does not count: it does not mean that its images are missing. */
function isMissing(error: unknown): boolean {
  return error instanceof S3Error && error.code === "NoSuchKey";
}

/** Whether the error ends the attempts: returns it as callers get it, or null when attempt `attempt + 1` may begin. */
function lastError(error: unknown, attempt: number): unknown | null {
  return isPassing(error) && attempt < ATTEMPTS ? null : unavailable(error);
}

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
function unavailable(cause: unknown): unknown {
  const code = systemCodeOf(cause);
  if (cause instanceof StorageUnavailable || cause instanceof ObjectGone) return cause;
  if (code === "unknown" && !(cause instanceof ConnectionError)) return cause;
  if (FULL.has(code)) return new StorageUnavailable("full", "The service's object storage is full.", cause);
  const message = `The service cannot use its object storage now (${code}).`;
  return new StorageUnavailable("broken", message, cause);
}

/**
 * Returns a function that returns the keys of the role of this process: of its web identity, its container or its machine, or of
 * a profile, as Amazon's own programs find them in the environment, which the SDK reads itself. It refreshes keys in the
 * last five minutes before they expire, while the old ones are still used. `place` is the bucket in words. Throws
 * `INVALID_CONFIG` when there are no keys.
 */
export async function roleKeys(place: string): Promise<RoleKeys> {
  const provide = defaultProvider();
  const keys = () =>
    provide().catch((error) => {
      throw new NoKeys(error);
    });
  await keys().catch((cause: NoKeys) => {
    const message = `storage.blobs: ${place} needs keys: AWS_ACCESS_KEY_ID is not set, and ${cause.message}.`;
    const advice =
      "export AWS_ACCESS_KEY_ID=<id>; export AWS_SECRET_ACCESS_KEY=<secret>; or give this process a role, then run the same command again";
    throw new ImgbatchError("INVALID_CONFIG", message, { advice, cause });
  });
  return keys;
}

/** The role has no keys for now. What the source of keys has answered may hold them, so a message that quotes it is left out. */
class NoKeys extends Error {
  readonly code = "NO_KEYS";

  constructor(error: unknown) {
    const { name, message } = error as Error;
    const isQuoted = name === "SyntaxError" || systemCodeOf(error).startsWith("ERR_");
    super(
      `this process has no role with keys (${isQuoted ? "the answer cannot be read" : firstLine(message)})`,
    );
    this.name = "NoKeys";
  }
}

const firstLine = (text: string) => (text.split("\n")[0] ?? "").replace(/\.$/, "");
