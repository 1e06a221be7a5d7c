import type { Fact } from "../model.ts";

/** A pressed key, by its meaning. `char` is any printable text. */
export type Key =
  | { name: "up" | "down" | "pageUp" | "pageDown" | "home" | "end" | "enter" | "escape" | "backspace" }
  | { name: "interrupt" }
  | { name: "char"; text: string };

/** A change that needs no decision: news from the source, a new window size in cells, or the passing of time. */
export type Change =
  | Fact
  | { type: "resize"; columns: number; rows: number }
  | { type: "tick"; nowMs: number };

/** Everything that can happen to the dashboard. The reducer turns each event into a new state. */
export type DashboardEvent = Change | { type: "key"; key: Key };
