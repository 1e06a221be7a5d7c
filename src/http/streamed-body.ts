import { ReadableStream } from "node:stream/web";

/** A request body that is too large for memory. It is made again, piece by piece, each time it is sent. */
export interface StreamedBody {
  /** Exactly the number of bytes that `open` yields, for the `Content-Length`. */
  bytes: number;
  /** Yields the body. An error that it throws ends the request, which then has not arrived whole. */
  open(): AsyncIterable<Uint8Array>;
}

/** A body that is being sent. `failure` returns the error that the body itself threw, or null. */
export interface BodyOnItsWay {
  init: Record<string, unknown>;
  headers: Record<string, string>;
  failure(): { reason: unknown } | null;
  /** Ends the body: `fetch` itself goes on reading after an abort. */
  stop(): void;
}

/** Returns what `fetch` needs to send a body: text as it is, pieces as they come. */
export function sendable(body: string | StreamedBody | undefined): BodyOnItsWay {
  let failure: { reason: unknown } | null = null;
  const known = { failure: () => failure, stop: () => {} };
  if (body === undefined) return { ...known, init: {}, headers: {} };
  const type = { "content-type": "application/json" };
  if (typeof body === "string") return { ...known, init: { body }, headers: type };
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
    // Without `half`, fetch refuses a body that is still being made. Without the other two it keeps a copy of everything
    // that was sent, since a redirect or a window could ask for it again.
    init: { body: ReadableStream.from(pieces()), duplex: "half", redirect: "error", window: null },
    headers: { ...type, "content-length": String(body.bytes) },
  };
}
