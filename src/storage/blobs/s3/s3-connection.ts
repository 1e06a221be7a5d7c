import { AwsV4Signer } from "aws4fetch";
import { Agent } from "undici";
import { type Answer, beginningOf, type StreamedBody, send } from "../../../http/transport.ts";
import { overConnections } from "../../../http/undici-engine.ts";
import { type BackoffPolicy, backoffMs } from "../../../kernel/backoff.ts";
import { type Clock, systemClock } from "../../../kernel/clock.ts";
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
  body?: Buffer | StreamedBody;
}

const ATTEMPTS = 8;
/** No attempt begins later than this after the first. */
const GIVE_UP_MS = 30_000;
const BACKOFF: BackoffPolicy = { baseMs: 100, capMs: 5_000 };
const CONNECT_MS = 5_000;
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
  readonly #agent = new Agent({
    connect: { timeout: CONNECT_MS },
    connections: CONNECTIONS,
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  readonly #engine = overConnections(this.#agent);
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
    const signed = await new AwsV4Signer({ ...this.#signing, method, url, headers: named }).sign();
    const sending = {
      method,
      headers: Object.fromEntries(signed.headers),
      body,
      // Closing the store closes its connections, which ends all requests.
      signal: NEVER,
      silenceMs: this.#silenceMs,
    };
    const answer = await send(signed.url, sending, this.#engine);
    if (answer.status < 300) return answer;
    const text = (await beginningOf(answer.body, MAX_ERROR_BYTES)).toString("latin1");
    throw new S3Error(`${method} ${new URL(url).pathname}`, answer.status, readErrorCode(text));
  }
}
