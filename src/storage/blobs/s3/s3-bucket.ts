import { createHash } from "node:crypto";
import type { ListedBlob } from "../../../domain/ports/blob-store.ts";
import { type Answer, boundedBytes, headersOf } from "../../../http/transport.ts";
import { systemClock } from "../../../kernel/clock.ts";
import {
  type ConnectionSettings,
  lastError,
  ObjectGone,
  readPage,
  S3Connection,
  S3Error,
  unavailable,
} from "./s3-connection.ts";

export interface BucketSettings extends ConnectionSettings {
  /** Before every key, without slashes at its ends; may be empty. */
  prefix: string;
}

/** An object on its way into the bucket. */
interface Upload {
  sizeBytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  /** Called for each attempt, if it is a function. */
  bytes: Buffer | (() => AsyncIterable<Uint8Array>);
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

/** Far more than a page of a thousand names takes. A longer answer is not read as one. */
const MAX_PAGE_BYTES = 16 * 1024 * 1024;
/** An object that differs from the server's own checksum is read this many times. */
const READINGS = 3;

/** The objects of a bucket below a prefix. Methods reject with `StorageUnavailable` when the server cannot be used. */
export class S3Bucket {
  readonly #connection: S3Connection;
  readonly #prefix: string;

  constructor(settings: BucketSettings) {
    this.#connection = new S3Connection(settings);
    this.#prefix = settings.prefix === "" ? "" : `${settings.prefix}/`;
  }

  /** The object is durable when this resolves. */
  async put(key: string, upload: Upload): Promise<void> {
    await this.#connection.send(this.#putRequest(key, upload), finish);
  }

  /** Leaves an object as it is that has the key already. A server that cannot do that replaces it. */
  async putNew(key: string, upload: Upload): Promise<void> {
    const sent = this.#putRequest(key, upload);
    const onlyNew = { ...sent, headers: { ...sent.headers, "if-none-match": "*" } };
    try {
      await this.#connection.send(onlyNew, finish, [412, 501]);
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      // Not implemented there.
      if (error.status === 501) await this.#connection.send(sent, finish);
    }
  }

  #putRequest(key: string, { sizeBytes, sha256, bytes }: Upload): Parameters<S3Connection["send"]>[0] {
    const headers = {
      "x-amz-content-sha256": sha256,
      "x-amz-checksum-sha256": Buffer.from(sha256, "hex").toString("base64"),
    };
    return {
      method: "PUT",
      url: this.#urlOf(key),
      headers,
      body: Buffer.isBuffer(bytes) ? bytes : { bytes: sizeBytes, open: bytes },
    };
  }

  /** Bytes `start` to `end`, inclusive. Null when there is no such object. */
  async get(key: string, range?: { start: number; end: number }): Promise<Download | null> {
    const first = await this.#get(key, range);
    if (first === null) return null;
    let current = first.answer;
    return {
      sizeBytes: first.sizeBytes,
      sha256: range ? null : checksumOf(first.answer),
      bytes: () =>
        this.#bytes(key, first, (answer) => {
          current = answer;
        }),
      drop: () => current.cancel(),
    };
  }

  /** Null when there is no such object. */
  async sizeOf(key: string): Promise<number | null> {
    const sent = { method: "HEAD", url: this.#urlOf(key) } as const;
    try {
      return await this.#connection.send(sent, lengthOf, [400, 401, 403, 404]);
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
    take: (object: Download, bytes: AsyncIterable<Buffer>) => Promise<T | null>,
  ): Promise<T | null> {
    for (let reading = 1; reading <= READINGS; reading++) {
      const object = await this.get(key);
      if (object === null) return null;
      try {
        const hash = createHash("sha256");
        const result = await take(object, hashed(object.bytes(), hash));
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
    const query = { "list-type": "2", "encoding-type": "url", prefix: this.#prefix + keyPrefix };
    for (let next: string | null = ""; next !== null; ) {
      const from: Record<string, string> = next === "" ? {} : { "continuation-token": next };
      const url = this.#connection.urlOf("", { ...query, ...from });
      const { page, nowMs }: ListAnswer = await this.#connection.send({ method: "GET", url }, readList);
      for (const { key, sizeBytes, changedAtMs } of page.objects) {
        // Consoles of some servers make such objects for the directories that they show.
        if (key.endsWith("/")) continue;
        blobs.push({ key: key.slice(this.#prefix.length), sizeBytes, ageMs: nowMs - changedAtMs });
      }
      next = page.next;
    }
    return blobs;
  }

  /** Does nothing when there is no such object. */
  async delete(key: string): Promise<void> {
    const sent = { method: "DELETE", url: this.#urlOf(key) } as const;
    await this.#connection.send(sent, finish, [404]).catch((error) => {
      if (!isMissing(error)) throw unavailable(error);
    });
  }

  #urlOf(key: string): string {
    return this.#connection.urlOf(this.#prefix + key);
  }

  async #get(
    key: string,
    range?: { start: number; end: number },
    etag?: string,
  ): Promise<FirstAnswer | null> {
    const headers = {
      ...(range && { range: `bytes=${range.start}-${range.end}` }),
      ...(range ? {} : { "x-amz-checksum-mode": "ENABLED" }),
      ...(etag !== undefined && { "if-match": etag }),
    };
    const sent = { method: "GET", url: this.#urlOf(key), headers } as const;
    try {
      return await this.#connection.send(sent, async (answer) => firstAnswer(answer, range), [404, 416]);
    } catch (error) {
      if (isMissing(error)) return null;
      if (error instanceof S3Error && error.status === 416 && range?.start === 0) return EMPTY;
      throw unavailable(error);
    }
  }

  async *#bytes(
    key: string,
    { answer: first, start, end, etag }: FirstAnswer,
    onAnswer: (answer: Answer) => void,
  ): AsyncGenerator<Buffer> {
    let [answer, at] = [first, start];
    for (let failures = 0; at < end; ) {
      try {
        for await (const chunk of answer.body) {
          at += chunk.length;
          failures = 0;
          yield chunk;
        }
      } catch (error) {
        if (at >= end) return;
        const last = lastError(error, ++failures);
        if (last !== null) throw last;
        await this.#connection.pauseAfter(failures);
      }
      if (at >= end) return;
      const next = await this.#get(key, { start: at, end: end - 1 }, etag);
      if (next === null) throw new ObjectGone(`${key} was deleted while it was read`);
      answer = next.answer;
      onAnswer(answer);
    }
  }
}

/** A missing bucket does not count: it does not mean that its images are missing. */
function isMissing(error: unknown): boolean {
  return error instanceof S3Error && error.code === "NoSuchKey";
}

interface FirstAnswer {
  answer: Answer;
  /** The size of the whole object, in bytes. */
  sizeBytes: number;
  start: number;
  /** Exclusive. */
  end: number;
  etag: string | undefined;
}

/** An empty object has no range. */
const EMPTY: FirstAnswer = {
  answer: {
    status: 200,
    ok: true,
    headers: headersOf({}),
    cancel: () => {},
    body: (async function* () {})(),
  },
  sizeBytes: 0,
  start: 0,
  end: 0,
  etag: undefined,
};

/** Reads the headers of an answer with an object. Throws when it is not the range that was asked for. */
function firstAnswer(answer: Answer, range: { start: number; end: number } | undefined): FirstAnswer {
  const length = Number(answer.headers.get("content-length"));
  const etag = answer.headers.get("etag") ?? undefined;
  const whole = { answer, sizeBytes: length, start: 0, end: length, etag };
  const [, start, end, size] =
    /^bytes (\d+)-(\d+)\/(\d+)$/.exec(answer.headers.get("content-range") ?? "") ?? [];
  if (answer.status === 206 && range && Number(start) === range.start && Number(end) <= range.end) {
    return { ...whole, sizeBytes: Number(size), start: range.start, end: Number(end) + 1 };
  }
  const isWhole = range === undefined || (range.start === 0 && length <= range.end + 1);
  if (answer.status === 200 && isWhole && Number.isSafeInteger(length)) return whole;
  answer.cancel();
  throw Object.assign(new Error("the answer is not the range that was asked for"), { code: "BAD_RANGE" });
}

/** The hash of the whole object; not that of an object in parts, which is one of hashes. */
function checksumOf({ headers }: Answer): string | null {
  const checksum = headers.get("x-amz-checksum-sha256");
  return checksum?.includes("-") ? null : checksum;
}

async function* hashed(
  bytes: AsyncIterable<Buffer>,
  hash: ReturnType<typeof createHash>,
): AsyncGenerator<Buffer> {
  for await (const chunk of bytes) {
    hash.update(chunk);
    yield chunk;
  }
}

async function finish(answer: Answer): Promise<void> {
  for await (const _ of answer.body);
}

async function lengthOf(answer: Answer): Promise<number> {
  await finish(answer);
  return Number(answer.headers.get("content-length"));
}

interface ListAnswer {
  page: ReturnType<typeof readPage>;
  /** By the server's clock. */
  nowMs: number;
}

async function readList(answer: Answer): Promise<ListAnswer> {
  const text = await boundedBytes(answer.body, MAX_PAGE_BYTES);
  const nowMs = Date.parse(answer.headers.get("date") ?? "");
  const page = readPage(text?.toString() ?? "");
  return { page, nowMs: Number.isNaN(nowMs) ? systemClock.nowMs() : nowMs };
}
