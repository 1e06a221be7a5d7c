import { systemClock } from "./clock.ts";

/** The slowest rate at which bytes may move over a connection. */
interface TransferRate {
  /** The length of a window, in ms. */
  windowMs: number;
  /** The fewest bytes that must move in each window. */
  bytesPerWindow: number;
  /** How long the whole transfer may take, in ms. */
  deadlineMs: number;
}

/** A slower transfer counts as making no progress. */
const LEAST_BYTES_PER_SECOND = 8 * 1024;

/** Lets a transfer go on as long as it makes progress in each window, however large it is. */
export function progressWithin(windowMs: number): TransferRate {
  const bytesPerWindow = (LEAST_BYTES_PER_SECOND * windowMs) / 1000;
  return { windowMs, bytesPerWindow, deadlineMs: Number.POSITIVE_INFINITY };
}

interface TransferWatch {
  /** Reports that bytes have moved. */
  moved(bytes: number): void;
  /** Stops the time until `resume`: we are slow, not the other side. */
  pause(): void;
  resume(): void;
  stop(): void;
}

/** Watches one transfer. Calls `onSlow` once when it is slower than allowed, and then stops watching. */
export function watchTransfer(rate: TransferRate, onSlow: () => void): TransferWatch {
  let inWindow = 0;
  let leftMs = rate.deadlineMs;
  let windowMs = Math.min(rate.windowMs, leftMs);
  /** The rest of the window, in ms. */
  let restMs = windowMs;
  let startedAt = 0;
  let timer: NodeJS.Timeout | undefined;
  const start = () => {
    startedAt = systemClock.monotonicMs();
    timer = setTimeout(() => {
      timer = undefined;
      leftMs -= windowMs;
      const isSlow = windowMs === rate.windowMs && inWindow < rate.bytesPerWindow;
      inWindow = 0;
      windowMs = Math.min(rate.windowMs, leftMs);
      restMs = windowMs;
      if (isSlow || leftMs <= 0) onSlow();
      else start();
    }, restMs);
  };
  const stop = () => {
    if (timer === undefined) return;
    clearTimeout(timer);
    timer = undefined;
    restMs = Math.max(0, restMs - (systemClock.monotonicMs() - startedAt));
  };
  start();
  return {
    moved: (bytes) => {
      inWindow += bytes;
    },
    pause: stop,
    // The window continues where it stopped: frequent pauses must not hide a slow sender.
    resume: () => {
      if (timer === undefined) start();
    },
    stop,
  };
}
