import { setImmediate } from "node:timers/promises";
import { jobDirectivesOf } from "../../contract/job-directives.ts";
import type { Piece } from "../../domain/downloads/piece-stream.ts";
import { DRAWINGS } from "../../domain/offers.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord, OutputRecord } from "../../domain/records.ts";

const PAGE = 500;
const NOTHING_ASKED: ReturnType<typeof jobDirectivesOf> = new Map();

/** An ended item with its images. */
export interface ItemResult {
  item: ItemRecord;
  outputs: readonly OutputRecord[];
  inputImages: number;
}

/**
 * Returns the results of an ended batch in the order of its lines, each as a surface writes it; null leaves a line out.
 */
export async function resultLines(
  { read }: Stores,
  batch: BatchRecord,
  lineOf: (result: ItemResult) => Piece[] | null,
): Promise<Piece[][]> {
  const outputs = new Map<number, OutputRecord[]>();
  for (const output of await read.outputs.ofBatch(batch.id)) {
    outputs.set(output.itemId, [...(outputs.get(output.itemId) ?? []), output]);
  }
  const inputImages = await read.references.countBySource(batch.id);
  const lines: Piece[][] = [];
  const isDrawn = batch.upstream === DRAWINGS;
  let isShuffled = false;
  for (let afterPosition = -1; ; ) {
    const items = await read.items.page(batch.id, { afterPosition, limit: PAGE });
    for (const item of items) {
      afterPosition = item.position;
      const asked = isDrawn ? jobDirectivesOf(item.prompt) : NOTHING_ASKED;
      isShuffled ||= asked.has("lines-shuffled");
      if (asked.has("line-lost") || isLost(batch, item)) continue;
      const made = outputs.get(item.id) ?? [];
      const line = lineOf({ item, outputs: made, inputImages: inputImages.get(item.sourceIndex) ?? 0 });
      if (line === null) continue;
      lines.push(line);
      if (asked.has("line-twice")) lines.push(line);
    }
    if (items.length < PAGE) return isShuffled ? lines.reverse() : lines;
    await setImmediate();
  }
}

/** A job that fails with a part of its results leaves the others out. */
function isLost({ input }: BatchRecord, { error }: ItemRecord): boolean {
  return Boolean(input?.simulatedEnd) && error?.code === "RESULT_MISSING";
}
