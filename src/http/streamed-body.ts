/** A request body that is too large for memory. It is made again, piece by piece, each time it is sent. */
export interface StreamedBody {
  /** Exactly the number of bytes that `open` yields, for the `Content-Length`. */
  bytes: number;
  /** Yields the body. An error that it throws ends the request, which then has not arrived whole. */
  open(): AsyncIterable<Uint8Array>;
}

/** A body that is being sent. `failure` returns the error that the body itself threw, or null. */
export interface BodyOnItsWay {
  /** As `send` takes it. */
  body: string | AsyncIterable<Uint8Array> | undefined;
  headers: Record<string, string>;
  failure(): { reason: unknown } | null;
  /** Ends the body, and closes what it reads from. */
  stop(): void;
}

/** Returns what is needed to send a body: text as it is, pieces as they come. */
export function sendable(body: string | StreamedBody | undefined): BodyOnItsWay {
  let failure: { reason: unknown } | null = null;
  const known = { failure: () => failure, stop: () => {} };
  if (body === undefined) return { ...known, body, headers: {} };
  const type = { "content-type": "application/json" };
  if (typeof body === "string") return { ...known, body, headers: type };
  const source = body.open()[Symbol.asyncIterator]();
  let isStopped = false;
  const pieces = async function* () {
    try {
      for (;;) {
        const { value, done } = await source.next();
        if (done || isStopped) return;
        yield value;
      }
    } catch (reason) {
      failure = { reason };
      throw reason;
    }
  };
  const stop = () => {
    isStopped = true;
    // Closes what the body has open. An error of that matters no more.
    Promise.resolve(source.return?.()).catch(() => {});
  };
  return {
    ...known,
    stop,
    body: pieces(),
    headers: { ...type, "content-length": String(body.bytes) },
  };
}
