import type { IncomingHttpHeaders } from "node:http";
import { AwsV4Signer } from "aws4fetch";
import { Agent, type Dispatcher, request } from "undici";
import { type BackoffPolicy, backoffMs } from "../../../kernel/backoff.ts";
import { type Clock, systemClock } from "../../../kernel/clock.ts";
import { progressWithin, type TransferWatch, watchTransfer } from "../../../kernel/transfer-rate.ts";
import { isPassing, S3Error, unavailable } from "./s3-errors.ts";
import { readErrorCode } from "./xml.ts";

export interface S3Credentials {
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string | undefined;
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

export interface S3Request {
  method: "GET" | "HEAD" | "PUT" | "DELETE";
  url: string;
  headers?: Readonly<Record<string, string>>;
  /** Called for each attempt. */
  body?: () => AsyncIterable<Uint8Array>;
}

/** An answer below 400. */
export interface S3Answer {
  status: number;
  headers: IncomingHttpHeaders;
  /** The body, once. Ends with an error when it is cut or too slow; time that the reader takes does not count. */
  bytes(): AsyncGenerator<Buffer>;
  /** Ends the transfer. */
  drop(): void;
}

const ATTEMPTS = 8;
/** No attempt begins later than this after the first. */
const GIVE_UP_MS = 30_000;
const BACKOFF: BackoffPolicy = { baseMs: 100, capMs: 5_000 };
const CONNECT_MS = 5_000;
const CONNECTIONS = 32;
const MAX_ERROR_BYTES = 64 * 1024;
const NO_BYTES_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/** Whether the error ends the attempts: returns it as callers get it, or null when attempt `attempt + 1` may begin. */
export function lastError(error: unknown, attempt: number): unknown | null {
  return isPassing(error) && attempt < ATTEMPTS ? null : unavailable(error);
}

/** Signed requests to one S3 server. Every request is one that may be repeated, and is. */
export class S3Connection {
  readonly #agent = new Agent({
    connect: { timeout: CONNECT_MS },
    connections: CONNECTIONS,
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  readonly #signing: Omit<ConstructorParameters<typeof AwsV4Signer>[0], "url">;
  readonly #silenceMs: number;
  readonly #clock: Clock;
  readonly #closed: AbortSignal | undefined;

  constructor(settings: S3Credentials) {
    const { region, accessKeyId, secretAccessKey, sessionToken } = settings;
    const token = sessionToken === undefined ? {} : { sessionToken };
    this.#signing = { service: "s3", region, accessKeyId, secretAccessKey, ...token, cache: new Map() };
    this.#silenceMs = settings.silenceMs ?? 10_000;
    this.#clock = settings.clock ?? systemClock;
    this.#closed = settings.closed;
    this.#closed?.addEventListener("abort", () => void this.#agent.destroy(), { once: true });
  }

  /** Resolves before attempt number `attempt + 1`. */
  pauseAfter(attempt: number): Promise<void> {
    return this.#clock.sleep(backoffMs(attempt, BACKOFF, Math.random), this.#closed).catch(() => {});
  }

  /**
   * Sends a request, again when that may help, and reads the answer with `use`, which is called again then, too. Rejects with
   * `StorageUnavailable` after some seconds, or with `S3Error` for a status in `expected`.
   */
  async send<T>(
    sent: S3Request,
    use: (answer: S3Answer) => Promise<T>,
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

  async #once(sent: S3Request): Promise<S3Answer> {
    const { method, url, body } = sent;
    const headers = { "x-amz-content-sha256": NO_BYTES_SHA256, ...sent.headers };
    const signed = await new AwsV4Signer({ ...this.#signing, method, url, headers }).sign();
    const ending = new AbortController();
    const silence = Object.assign(new Error("no answer, or a very slow one"), { code: "SILENCE" });
    const watch = watchTransfer(progressWithin(this.#silenceMs), () => ending.abort(silence));
    try {
      const answer = await request(signed.url, {
        dispatcher: this.#agent,
        method,
        headers: Object.fromEntries(signed.headers),
        body: body ? watched(body(), watch) : null,
        signal: ending.signal,
      } as Parameters<typeof request>[1]);
      // Nobody may listen any more when the transfer ends.
      answer.body.on("error", () => {});
      if (answer.statusCode >= 300) throw await errorOf(answer, sent, watch);
      return {
        status: answer.statusCode,
        headers: answer.headers,
        bytes: () => read(answer.body, watch),
        drop: () => {
          watch.stop();
          ending.abort(silence);
        },
      };
    } catch (error) {
      watch.stop();
      throw ending.signal.aborted ? silence : error;
    }
  }
}

async function errorOf(
  { body, statusCode }: Dispatcher.ResponseData<unknown>,
  { method, url }: S3Request,
  watch: TransferWatch,
): Promise<S3Error> {
  let text = "";
  for await (const chunk of read(body, watch)) {
    text += chunk.toString("latin1");
    if (text.length > MAX_ERROR_BYTES) break;
  }
  return new S3Error(`${method} ${new URL(url).pathname}`, statusCode, readErrorCode(text));
}

/** Counts what leaves. */
async function* watched(bytes: AsyncIterable<Uint8Array>, watch: TransferWatch): AsyncGenerator<Uint8Array> {
  for await (const chunk of bytes) {
    watch.moved(chunk.length);
    yield chunk;
  }
}

async function* read(body: AsyncIterable<Buffer>, watch: TransferWatch): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of body) {
      watch.moved(chunk.length);
      watch.pause();
      yield chunk;
      watch.resume();
    }
  } finally {
    watch.stop();
  }
}
