import { systemClock } from "./clock.ts";

/** A slower transfer counts as making no progress. */
const LEAST_BYTES_PER_SECOND = 8 * 1024;

/** How slow a transfer may be: it goes on as long as it makes progress in each window, however large it is. */
export interface TransferRate {
  /** The length of a window, in ms. */
  windowMs: number;
  /** How long the whole transfer may take, in ms. Default: no limit. */
  deadlineMs?: number;
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
  const bytesPerWindow = (LEAST_BYTES_PER_SECOND * rate.windowMs) / 1000;
  let leftMs = rate.deadlineMs ?? Number.POSITIVE_INFINITY;
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
      const isSlow = windowMs === rate.windowMs && inWindow < bytesPerWindow;
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
