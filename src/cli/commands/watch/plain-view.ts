import type { Batch } from "../../../client/batch.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { hasChanged } from "../../../runs/wait.ts";
import type { Lines } from "../../command-line/command-context.ts";
import { batchLine } from "../../result/batch-line.ts";
import type { WatchView } from "./watch-batches.ts";

/** The time between two lines of one batch, which may be unchanged. */
const CHANGE_MS = 10_000;
const HEARTBEAT_MS = 60_000;

/** Writes a line for each batch that has changed, and for its end at once. `lines` gets the requests that failed. */
export function createPlainView(
  say: (line: string) => void,
  clock: Clock,
  lines: Pick<Lines, "progress" | "settle">,
): WatchView {
  const told = new Map<string, { batch: Batch; atMs: number }>();
  return {
    show: (batches) => {
      lines.settle();
      const nowMs = clock.nowMs();
      for (const batch of batches) {
        const last = told.get(batch.id);
        if (last !== undefined && nowMs - last.atMs < pauseAfter(last.batch, batch)) continue;
        told.set(batch.id, { batch, atMs: nowMs });
        say(batchLine(batch));
      }
    },
    trouble: (text) => lines.progress(text),
    close: () => lines.settle(),
  };
}

function pauseAfter(before: Batch, now: Batch): number {
  if (before.isDone) return Number.POSITIVE_INFINITY;
  if (now.isDone) return 0;
  return hasChanged(before, now) ? CHANGE_MS : HEARTBEAT_MS;
}
