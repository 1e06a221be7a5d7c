import { randomBytes } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { ImgbatchError } from "../../contract/errors.ts";
import { JOB_DIRECTIVES, stuckMs } from "../../contract/job-directives.ts";
import { type BatchStatus, type ItemError, isTerminal } from "../../contract/statuses.ts";
import type { Piece } from "../../domain/downloads/piece-stream.ts";
import type { Line } from "../../domain/jobs/take-in.ts";
import { DRAWINGS } from "../../domain/models.ts";
import type { Repositories, Stores } from "../../domain/ports/stores.ts";
import type { BatchError, BatchRecord, ItemRecord, OutputRecord } from "../../domain/records.ts";
import type { Clock } from "../../kernel/clock.ts";

const FAILED = "The job ended without all results, as a directive in its prompts asks.";
const EXPIRED = "The job expired, as a directive in its prompts asks.";

/** The error of a line behind `job-partial`. A file that is lost has the same code, and another source. */
const LEFT_OUT: ItemError = { code: "RESULT_MISSING", message: FAILED, source: "provider" };

/**
 * Returns a function that applies the directives in the prompts of a job to its lines, which it gets in their order. Only
 * drawings obey directives. Throws `BATCH_IMAGE_PROVIDER_SUBMIT_FAILED` for a job that ends without results.
 */
export function simulation({ upstream }: Pick<BatchRecord, "upstream">, clock: Clock): (line: Line) => Line {
  let isPartial = false;
  return (line) => {
    if (upstream !== DRAWINGS || !("content" in line)) return line;
    const asked = jobDirectivesOf(line.content.prompt);
    if (asked.has("job-fail")) throw new ImgbatchError("BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", FAILED);
    if (asked.has("job-expire")) throw new ImgbatchError("BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", EXPIRED);
    isPartial ||= asked.has("job-partial");
    const waitMs = stuckMs(asked.get("job-stuck") ?? "");
    const wait = waitMs === null ? {} : { notBeforeMs: clock.nowMs() + waitMs };
    return isPartial ? { key: line.key, ...wait, error: LEFT_OUT } : { ...line, ...wait };
  };
}

type JobDirective = (typeof JOB_DIRECTIVES)[number];

/** Returns the directives for jobs in a prompt. Only `job-stuck` has a value: the text behind its colon. */
function jobDirectivesOf(prompt: string): ReadonlyMap<JobDirective, string> {
  const found = new Map<JobDirective, string>();
  if (!prompt.includes("[[")) return found;
  // A value without brackets ends at the next one: the time does not grow with the square of the length.
  for (const [, name = "", value] of prompt.matchAll(/\[\[\s*([a-z-]+)\s*(?::([^[\]]*))?\]\]/g)) {
    const directive = JOB_DIRECTIVES.find((known) => known === name);
    const isWellFormed = (directive === "job-stuck") === (value !== undefined);
    if (directive && isWellFormed) found.set(directive, value?.trim() ?? "");
  }
  return found;
}

/** Whether the results of a job do not have this item, because the job ended before it. */
function isLeftOut({ error }: Pick<ItemRecord, "error">): boolean {
  return error?.code === LEFT_OUT.code && error.source === LEFT_OUT.source;
}

/**
 * Returns how a directive has ended a job; null for a job that has ended by itself, or not at all. `status`: that of the
 * batch before its outputs were deleted.
 */
async function simulatedEnd(
  read: Repositories,
  { id, upstream, error, itemCount, failCount }: BatchRecord,
  status: BatchStatus,
): Promise<{ status: "failed" | "expired"; error: BatchError } | null> {
  if (upstream !== DRAWINGS) return null;
  if (error?.message === EXPIRED) return { status: "expired", error };
  // The other lines may have been made: their batch is completed.
  if (status !== "completed" || failCount === 0) return null;
  const [last] = await read.items.page(id, { afterPosition: itemCount - 2, limit: 1 });
  if (!last || !isLeftOut(last)) return null;
  const { message, source } = LEFT_OUT;
  return { status: "failed", error: { code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", message, source } };
}

/** How far a job has come, and why it failed. */
export interface JobProgress {
  status: Exclude<BatchStatus, "output_deleted"> | "expired";
  error: BatchError | null;
}

/** Returns the progress of a job. If its outputs were deleted, it is as far as it was before. */
export async function progressOf({ read }: Stores, batch: BatchRecord): Promise<JobProgress> {
  let { status } = batch;
  if (status === "output_deleted") {
    const events = await read.batches.events(batch.id);
    status = events.find(({ to }) => to === "output_deleted")?.from ?? "completed";
  }
  const { error } = batch;
  return (await simulatedEnd(read, batch, status)) ?? { status: status as JobProgress["status"], error };
}

/** Whether a batch has results to fetch. */
export function hasResults({ status, itemCount }: BatchRecord): boolean {
  return isTerminal(status) && status !== "output_deleted" && itemCount > 0;
}

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
      if (asked.has("line-lost") || (isDrawn && isLeftOut(item))) continue;
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

/** Stands for the Base64 of an image in the JSON of a result. Nobody else knows it. */
export const IMAGE_PLACE = randomBytes(16).toString("hex");

/** Puts the Base64 of each image into a JSON text where `IMAGE_PLACE` is. */
export function withImages(json: string, outputs: readonly OutputRecord[]): Piece[] {
  const [before = "", ...behind] = json.split(IMAGE_PLACE);
  return [
    before,
    ...behind.flatMap((text, i): Piece[] => {
      const output = outputs[i];
      if (output === undefined) return [text];
      const { blobKey, sizeBytes, crc32 } = output;
      return [{ blobKey, sizeBytes, crc32, isBase64: true }, text];
    }),
  ];
}
