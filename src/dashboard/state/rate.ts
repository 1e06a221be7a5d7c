import type { DashboardState } from "./state.ts";

/** The seconds that the sparkline shows. */
export const RATE_SECONDS = 60;
/** The seconds over which the images per second are averaged. */
const AVERAGE_SECONDS = 10;

/** Adds an empty entry for each second that has passed. A clock that went backwards changes nothing. */
export function advanceRate(state: DashboardState): DashboardState {
  const passed = Math.floor((state.nowMs - state.rateAtMs) / 1000);
  if (passed <= 0) return state;
  const empty = Array.from({ length: Math.min(passed, RATE_SECONDS) }, () => 0);
  const imagesBySecond = [...state.imagesBySecond, ...empty].slice(-RATE_SECONDS);
  return { ...state, imagesBySecond, rateAtMs: state.rateAtMs + passed * 1000 };
}

export function countImages(state: DashboardState, event: { count: number; atMs: number }): DashboardState {
  const at = advanceRate({ ...state, nowMs: Math.max(state.nowMs, event.atMs) });
  const seconds = at.imagesBySecond.length === 0 ? [0] : [...at.imagesBySecond];
  seconds[seconds.length - 1] = (seconds.at(-1) ?? 0) + event.count;
  return { ...at, imagesBySecond: seconds };
}

/** Images per second, averaged over the last full seconds. */
export function imagesPerSecond(state: DashboardState): number {
  const full = state.imagesBySecond.slice(0, -1).slice(-AVERAGE_SECONDS);
  if (full.length === 0) return state.imagesBySecond.at(-1) ?? 0;
  return full.reduce((sum, count) => sum + count, 0) / full.length;
}

/** The time that the waiting and running items will take at this rate, in ms; null when it is unknown. */
export function timeLeftMs(state: DashboardState): number | null {
  const left = state.vitals.waitingItems + state.vitals.runningItems;
  const rate = imagesPerSecond(state);
  if (left === 0) return 0;
  return rate > 0 && !state.vitals.isPaused ? (left / rate) * 1000 : null;
}
