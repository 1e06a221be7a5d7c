import { rm } from "node:fs/promises";
import { join } from "node:path";
import { listItems } from "../client/batches.ts";
import type { Batch } from "../client/read-batch.ts";
import type { BatchItem } from "../client/read-lists.ts";
import { saving } from "../client/saving.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { createDiskNames, type DiskNames } from "./disk-names.ts";
import type { FetchedImages } from "./fetch-images.ts";
import { fetchImages } from "./fetch-images.ts";
import { type Ledger, recordBatch, writeLedger } from "./ledger.ts";
import { type ResultFile, type ResultLine, readResults, writeResults } from "./results.ts";
import { readRunInput } from "./run-input.ts";
import type { RunVoice } from "./run-voice.ts";
import type { RunService } from "./service-identity.ts";
import { isSound } from "./sound-files.ts";

export interface CollectOptions {
  dir: string;
  ledger: Ledger;
  /** The batches of the ledger, in its order; all of them have ended. */
  batches: readonly Batch[];
  service: RunService;
  keepZip: boolean;
  clock: Clock;
  voice: RunVoice;
  signal?: AbortSignal | undefined;
}

export interface RunOutcome {
  dir: string;
  batches: readonly Batch[];
  /** One for each image that was asked for, in the order of the input. */
  lines: ResultLine[];
  /** Items whose files were missing or damaged here, and now are not. */
  fetchedCount: number;
  /** Whether `retry.jsonl` holds failed items. */
  hasRetry: boolean;
}

/**
 * Brings the images of ended batches into the directory: fetches what is missing or damaged, verifies, and writes the
 * results. What cannot be had of one batch does not keep the others from being fetched; then the first error is thrown
 * and the results of the earlier run stay as they are.
 * Rules: RUN-1, RUN-4, RUN-10, RUN-11.
 */
export async function collectRun(options: CollectOptions): Promise<RunOutcome> {
  const { dir, ledger, batches } = options;
  const earlier = await readResults(dir);
  const names = keepNames(earlier, batches);
  const lines: ResultLine[] = [];
  const errors: unknown[] = [];
  let fetchedCount = 0;
  for (const [index, batch] of batches.entries()) {
    const entry = ledger.batches[index];
    if (entry !== undefined) recordBatch(entry, batch);
    try {
      const found = await collectBatch(options, batch, earlier, names);
      lines.push(...found.lines);
      fetchedCount += found.fetchedCount;
    } catch (error) {
      if (options.signal?.aborted || !(error instanceof ImgbatchError)) throw error;
      errors.push(error);
    }
  }
  await writeLedger(dir, ledger);
  if (errors.length > 0) throw errors[0];
  const input = await readRunInput(dir);
  sortAsIn([...input.keys()], lines);
  const { hasRetry } = await writeResults(dir, lines, input);
  await removeSuperseded(dir, earlier, lines);
  ledger.finished_at = new Date(options.clock.nowMs()).toISOString();
  await writeLedger(dir, ledger);
  return { dir, batches, lines, fetchedCount, hasRetry };
}

async function collectBatch(
  options: CollectOptions,
  batch: Batch,
  earlier: readonly ResultLine[],
  names: DiskNames,
): Promise<{ lines: ResultLine[]; fetchedCount: number }> {
  const { dir, service, keepZip, signal, voice } = options;
  const { http } = service;
  const items = await listItems(http, batch.id, signal);
  if (batch.itemCount !== null && items.length !== batch.itemCount) {
    const message = `The service lists ${items.length} of the ${batch.itemCount} items of ${batch.id}.`;
    throw new ImgbatchError("BAD_RESPONSE", message);
  }
  const mine = new Map(
    earlier.filter((line) => line.batch_id === batch.id).map((line) => [line.custom_id, line]),
  );
  const fetched = await fetchImages({
    http,
    dir,
    batch,
    items,
    earlier: mine,
    names,
    keepZip,
    signal,
    voice,
  });
  return { lines: items.map((item) => toLine(item, batch, fetched)), fetchedCount: fetched.fetchedCount };
}

function toLine(item: BatchItem, batch: Batch, { byItem }: FetchedImages): ResultLine {
  const fetched = byItem.get(item.customId);
  return {
    custom_id: item.customId,
    status: item.status,
    batch_id: batch.id,
    files: fetched?.files ?? [],
    ...(fetched === undefined ? {} : { verified: fetched.verified }),
    ...(item.error === null ? {} : { error: item.error }),
  };
}

/** Services list items in the order of the request, but need not. Lines of unknown ids stay behind the others. */
function sortAsIn(ids: readonly string[], lines: ResultLine[]): void {
  const order = new Map(ids.map((id, index) => [id, index]));
  const rank = (line: ResultLine) => order.get(line.custom_id) ?? ids.length;
  lines.sort((a, b) => rank(a) - rank(b));
}

/** Files of an earlier run keep their names, so that a repair changes nothing else. */
function keepNames(earlier: readonly ResultLine[], batches: readonly Batch[]): DiskNames {
  const names = createDiskNames();
  const ids = new Set(batches.map((batch) => batch.id));
  for (const line of earlier) {
    if (ids.has(line.batch_id)) for (const file of line.files) names.keep(file.path);
  }
  return names;
}

/** Removes images that an earlier run put here and this one replaced; a file that was changed since is left alone. */
async function removeSuperseded(
  dir: string,
  earlier: readonly ResultLine[],
  lines: readonly ResultLine[],
): Promise<void> {
  const current = new Set(lines.flatMap((line) => line.files.map((file) => file.path)));
  const old: ResultFile[] = earlier.flatMap((line) => line.files).filter((file) => !current.has(file.path));
  for (const file of old) {
    if (!(await isSound(dir, file))) continue;
    const path = join(dir, file.path);
    await saving(path, () => rm(path, { force: true }));
  }
}
