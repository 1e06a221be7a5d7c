import type { BatchStatus } from "../contract/statuses.ts";
import { formatUsd } from "../kernel/money.ts";
import { escapeControls } from "../kernel/text.ts";

/** A sign, a word and a colour. Sign and word carry the meaning; the colour only helps. */
export interface Mark {
  sign: string;
  word: string;
  color?: string;
}

export const STATUS_MARKS: Record<BatchStatus, Mark> = {
  queued: { sign: "·", word: "queued" },
  running: { sign: "»", word: "running", color: "cyan" },
  processing_results: { sign: "»", word: "checking", color: "cyan" },
  settling: { sign: "»", word: "settling", color: "cyan" },
  completed: { sign: "✓", word: "completed", color: "green" },
  failed: { sign: "×", word: "failed", color: "red" },
  cancelled: { sign: "–", word: "cancelled", color: "yellow" },
  output_deleted: { sign: "–", word: "deleted", color: "gray" },
};

import cliTruncate from "cli-truncate";
import stringWidth from "string-width";

const PLAIN = /^[\x20-\x7e]*$/;
/** Measuring wide characters is slow, and every frame shows the same names. */
const known = new Map<string, string>();
const KNOWN_MOST = 4000;

/** Returns the text in exactly `width` cells, cut with an ellipsis or padded. Wide characters take two cells. */
export function inCells(text: string, width: number, align: "left" | "right" = "left"): string {
  if (width <= 0) return "";
  if (PLAIN.test(text))
    return fill(text.length <= width ? text : `${text.slice(0, width - 1)}…`, width, align);
  const key = `${width}${align}${text}`;
  const before = known.get(key);
  if (before !== undefined) return before;
  if (known.size >= KNOWN_MOST) known.clear();
  const cells = cutToCells(text, width, align);
  known.set(key, cells);
  return cells;
}

function fill(text: string, width: number, align: "left" | "right"): string {
  return align === "left" ? text.padEnd(width) : text.padStart(width);
}

function cutToCells(text: string, width: number, align: "left" | "right"): string {
  // Terminals disagree about the width of joined emoji. Apart, each takes two cells everywhere.
  const safe = escapeControls(text).replace(/[\u200d\ufe0e\ufe0f]/g, "");
  let cut = safe;
  // The libraries disagree about some widths, so cut until `stringWidth` agrees.
  for (let limit = width; stringWidth(cut) > width; limit--) cut = cliTruncate(safe, limit);
  const space = " ".repeat(Math.max(0, width - stringWidth(cut)));
  return align === "left" ? cut + space : space + cut;
}

/** A bar such as `███▒▒░░░░░`: done, failed (part of done) and left, as shares from 0 to 1 of `width` cells. */
export function bar(width: number, done: number, failed = 0): { good: string; bad: string; rest: string } {
  const filled = done >= 1 ? width : Math.min(width - 1, Math.floor(done * width));
  const bad = failed > 0 ? Math.min(filled, Math.max(1, Math.round(failed * width))) : 0;
  return { good: "█".repeat(filled - bad), bad: "▒".repeat(bad), rest: "░".repeat(width - filled) };
}

const HEIGHTS = " ▁▂▃▄▅▆▇█";

/** The last `width` values as a line of bars, where the highest value is a full bar. */
export function sparkline(values: readonly number[], width: number): string {
  const shown = values.slice(-width);
  const most = Math.max(1, ...shown);
  const bars = shown.map((value) => HEIGHTS[value === 0 ? 0 : Math.max(1, Math.round((value / most) * 8))]);
  return bars.join("").padStart(width, " ");
}

/** An amount, or a dash where the service does not report it. */
export function dollars(microUsd: number | null, as: Parameters<typeof formatUsd>[1]): string {
  return microUsd === null ? "–" : formatUsd(microUsd, as);
}
