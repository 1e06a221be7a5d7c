import type { IncomingMessage } from "node:http";
import { ImgbatchError } from "../../contract/errors.ts";
import { formatBytes } from "../../kernel/text.ts";
import { progressWithin, type TransferRate, watchTransfer } from "../../kernel/transfer-rate.ts";

/** `waitMs`: how long a body waits for memory before its request is refused with `RATE_LIMITED`. */
export interface BodyRate extends TransferRate {
  waitMs: number;
}

/** At least 8 KiB/s at any time; the deadline suffices for 192 MiB over 2 Mbit/s. */
export const BODY_RATE: BodyRate = {
  ...progressWithin(20_000),
  deadlineMs: 15 * 60_000,
  waitMs: 30_000,
};

/**
 * Reads a body to its end and passes its chunks to `add`. While a promise of `add` is pending, nothing is read, so the
 * sender has to wait. Throws `REQUEST_TOO_LARGE`, `REQUEST_TIMEOUT` for a sender that is too slow, and the errors of
 * `add`.
 */
export function readBody(
  request: IncomingMessage,
  options: { maxBytes: number; rate: TransferRate; add(chunk: Buffer): Promise<void> | null },
): Promise<void> {
  if (request.readableEnded) return Promise.resolve();
  if (request.destroyed) return Promise.reject(new Error("the request ended early"));
  if (request.complete) return takeWhole(request, options);
  return new Promise((resolve, reject) => {
    let size = 0;
    let isOver = false;
    let working: Promise<void> | null = null;
    const end = (settle: () => void) => {
      isOver = true;
      watch.stop();
      request.off("data", onData);
      request.off("end", onEnd);
      request.off("error", onBroken);
      request.off("close", onBroken);
      settle();
    };
    const fail = (error: unknown) => {
      if (!isOver) end(() => reject(error));
    };
    const onData = (chunk: Buffer) => {
      watch.moved(chunk.length);
      size += chunk.length;
      if (size > options.maxBytes) return fail(tooLarge(options.maxBytes));
      working = options.add(chunk);
      if (working !== null) waitFor(working);
    };
    const waitFor = (work: Promise<void>) => {
      request.pause();
      watch.pause();
      work.then(() => {
        if (isOver) return;
        watch.resume();
        request.resume();
      }, fail);
    };
    const onEnd = () => end(() => resolve(working ?? undefined));
    const onBroken = (error?: Error) => fail(error ?? new Error("the request ended early"));
    const watch = watchTransfer(options.rate, () => fail(new ImgbatchError("REQUEST_TIMEOUT")));
    request.on("data", onData);
    request.on("end", onEnd);
    request.on("error", onBroken);
    request.on("close", onBroken);
  });
}

/** A body that has come whole is in memory: there is nothing to wait for, and no sender to watch. */
async function takeWhole(
  request: IncomingMessage,
  { maxBytes, add }: { maxBytes: number; add(chunk: Buffer): Promise<void> | null },
): Promise<void> {
  const body: Buffer | null = request.read();
  if (body === null) return;
  if (body.length > maxBytes) throw tooLarge(maxBytes);
  await add(body);
}

export function tooLarge(maxBytes: number): ImgbatchError {
  return new ImgbatchError("REQUEST_TOO_LARGE", `The request body is larger than ${formatBytes(maxBytes)}.`);
}
