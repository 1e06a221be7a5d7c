import { ReadableStream } from "node:stream/web";

/** A request body that is too large to hold in memory: made anew, piece by piece, each time that it is sent. */
export interface StreamedBody {
  /** Exactly as many as `open` gives, so that the service knows the length beforehand. */
  bytes: number;
  /** What it throws ends the request, which then has not arrived whole. */
  open(): AsyncIterable<Uint8Array>;
}

/** A body on its way; `failure` is what the body itself threw, null while it did not. */
export interface BodyOnItsWay {
  init: Record<string, unknown>;
  headers: Record<string, string>;
  failure(): { reason: unknown } | null;
  /** Nothing more is wanted: `fetch` itself goes on reading after an abort. */
  stop(): void;
}

/** What `fetch` needs to send a body: text as it is, pieces as they come. */
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
    // What it has open is closed; how that goes is of no interest any more.
    Promise.resolve(source.return?.()).catch(() => {});
  };
  return {
    ...known,
    stop,
    // Without `half`, fetch takes no body that is still being made. Without the other two it keeps a copy of all that
    // was sent, for the case that a redirect or a window asks for it again.
    init: { body: ReadableStream.from(pieces()), duplex: "half", redirect: "error", window: null },
    headers: { ...type, "content-length": String(body.bytes) },
  };
}
