import type { Response } from "express";
import { goneSignal, onEnded } from "../connections/exchange.ts";

/**
 * Sends the bytes as the body of a response, and ends it. The next bytes are asked for when the system has taken the ones
 * before, so that their memory can be used again. Returns whether all were sent, and false when the reader goes away.
 * Rejects when the bytes do; a connection on which some were sent is broken then.
 */
export async function sendBytes(response: Response, bytes: AsyncIterable<Uint8Array>): Promise<boolean> {
  const gone = goneSignal(response);
  const ended = new Promise<boolean>((resolve) => onEnded(response, resolve));
  try {
    for await (const piece of bytes) {
      if (!(await isTaken(response, piece, gone))) return ended;
    }
  } catch (error) {
    if (response.headersSent) response.destroy();
    throw error;
  }
  response.end();
  // A response that waits behind another one (pipelining) does not end by itself.
  return ended;
}

/** Waits until the system has taken the bytes. Returns false when the reader goes away before. */
function isTaken(response: Response, bytes: Uint8Array, gone: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const leave = () => resolve(false);
    if (gone.aborted) return leave();
    gone.addEventListener("abort", leave, { once: true });
    response.write(bytes, (error) => {
      gone.removeEventListener("abort", leave);
      resolve(!error);
    });
  });
}
