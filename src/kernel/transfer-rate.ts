/** How slowly bytes may move over a connection. */
export interface TransferRate {
  /** In each window of this time … */
  windowMs: number;
  /** … at least so many bytes must move. */
  bytesPerWindow: number;
  /** All of it may take this long. */
  deadlineMs: number;
}

/** A transfer that is slower makes no progress. */
export const LEAST_BYTES_PER_SECOND = 8 * 1024;

/** A transfer goes on as long as it makes progress, however large it is. */
export function progressWithin(windowMs: number): TransferRate {
  const bytesPerWindow = (LEAST_BYTES_PER_SECOND * windowMs) / 1000;
  return { windowMs, bytesPerWindow, deadlineMs: Number.POSITIVE_INFINITY };
}

export interface TransferWatch {
  /** So many bytes moved. */
  moved(bytes: number): void;
  /** Whatever happens until `resume` is our own slowness, not the other side's. */
  pause(): void;
  resume(): void;
  stop(): void;
}

/** Watches one transfer; calls `onSlow` once when it is slower than allowed, and watches no more. */
export function watchTransfer(pace: TransferRate, onSlow: () => void): TransferWatch {
  let inWindow = 0;
  let leftMs = pace.deadlineMs;
  let windowMs = Math.min(pace.windowMs, leftMs);
  /** What is left of the window. */
  let restMs = windowMs;
  let startedAt = 0;
  let timer: NodeJS.Timeout | undefined;
  const start = () => {
    startedAt = performance.now();
    timer = setTimeout(() => {
      timer = undefined;
      leftMs -= windowMs;
      const isSlow = windowMs === pace.windowMs && inWindow < pace.bytesPerWindow;
      inWindow = 0;
      windowMs = Math.min(pace.windowMs, leftMs);
      restMs = windowMs;
      if (isSlow || leftMs <= 0) onSlow();
      else start();
    }, restMs);
  };
  const stop = () => {
    if (timer === undefined) return;
    clearTimeout(timer);
    timer = undefined;
    restMs = Math.max(0, restMs - (performance.now() - startedAt));
  };
  start();
  return {
    moved: (bytes) => {
      inWindow += bytes;
    },
    pause: stop,
    // The window goes on where it stood: pauses that come often must not hide a slow sender.
    resume: () => {
      if (timer === undefined) start();
    },
    stop,
  };
}
