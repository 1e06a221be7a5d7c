import { join } from "node:path";
import PQueue from "p-queue";
import { type GeneratedImage, type GenerateOptions, generateImage } from "../client/realtime.ts";
import { PAID_TWICE_NOTE } from "../contract/batch-api.ts";
import { errorEntry, ImgbatchError } from "../contract/errors.ts";
import { IMAGE_EXTENSIONS } from "../contract/image-formats.ts";
import { isOutOfCapacity } from "../http/retries.ts";
import type { Clock } from "../kernel/clock.ts";
import { syncDirectory } from "../kernel/files/durable-file.ts";
import { readReference, readRunInput } from "./directory/input.ts";
import { IMAGES_FOLDER } from "./directory/names.ts";
import { type ResultLine, writeResults } from "./directory/results.ts";
import { writeVerified } from "./directory/run-files.ts";
import { readRunState, writeRunState } from "./directory/run-state.ts";
import type { RunService } from "./directory/service-identity.ts";
import { textOf } from "./plan/spool.ts";
import {
  appendResult,
  findFinished,
  openRealtimeDirectory,
  rewriteResults,
  WITHOUT_RUN_STATE,
} from "./realtime-directory.ts";
import {
  ENDED,
  type PlannedImage,
  type RealtimePlan,
  renewRequestKey,
  requestKeyOf,
} from "./realtime-plan.ts";
import type { RunReporter } from "./reporter.ts";
import { factsOf } from "./save-image.ts";
import { standingOf } from "./standing.ts";

export interface RealtimeRunOptions extends GenerateOptions {
  plan: RealtimePlan;
  dir: string;
  service: RunService;
  /** Requests under way at once. */
  concurrency: number;
  clock: Clock;
  reporter: RunReporter;
  /**
   * Called before anything is sent, with the images that are missing; may throw to refuse. Returns the consent for
   * one image; null if none is needed.
   */
  approve?: (images: readonly PlannedImage[]) => Promise<number | null>;
  /** The failures of an earlier run that stay as they are. Default: images that two requests may have paid for. */
  staysFailed?: (line: ResultLine) => boolean;
}

export interface RealtimeOutcome {
  /** In the order of the input. */
  lines: ResultLine[];
  /** Images that an earlier run had made. */
  keptCount: number;
  /** The images that this run has made. */
  made: PlannedImage[];
  hasRetry: boolean;
  /** The error that ended the run before every image was requested. Null when it ran to its end. */
  stop: ImgbatchError | null;
  /** The last failure that was not about one prompt. Null without one. */
  failure: ImgbatchError | null;
  /** Requests that an interruption ended before their answer came: they may be billed. */
  abandonedCount: number;
}

/** After this many temporary failures in a row, the service counts as not working. */
const FAILURES_IN_A_ROW = 3;
/** Failures that concern one prompt only. */
const OF_ONE_PROMPT = [
  "IMAGE_REFUSED",
  "NO_IMAGES",
  "REALTIME_INVALID_ARGUMENT",
  "REALTIME_OUTCOME_UNKNOWN",
  "REQUEST_TOO_LARGE",
];

/**
 * Makes the images of a run that are not in its directory yet. When an error stops the run (no capacity, no money, no
 * permission, a full disk, failures in a row), requests under way are still waited for, since they may be billed. Only an
 * abort ends them. The results on disk always name every saved image.
 */
export async function runRealtime(options: RealtimeRunOptions): Promise<RealtimeOutcome> {
  const {
    plan,
    dir,
    service,
    clock,
    reporter,
    signal,
    staysFailed = (line: ResultLine) => standingOf(line) === "lost",
  } = options;
  const approve = async (images: readonly PlannedImage[]) => (await options.approve?.(images)) ?? null;
  // A refused run that is new leaves nothing behind.
  const isNew = (await readRunState(dir, WITHOUT_RUN_STATE)) === null;
  const early = isNew ? await approve(plan.images) : null;
  const runState = await openRealtimeDirectory(dir, plan, service, clock);
  const { found: lines, again } = await findFinished(dir, plan.images, staysFailed);
  const kept = new Set(
    [...lines.values()].flatMap((line) => (standingOf(line) === "here" ? [line.custom_id] : [])),
  );
  const keptCount = kept.size;
  const consentMicroUsd = isNew
    ? early
    : await approve(plan.images.filter(({ customId }) => !lines.has(customId)));
  const queue = new PQueue({ concurrency: options.concurrency });
  const run: Pick<RealtimeOutcome, "stop" | "failure" | "abandonedCount"> & { failuresInARow: number } = {
    stop: null,
    failure: null,
    failuresInARow: 0,
    abandonedCount: 0,
  };
  const reportProgress = () => reporter.progress(`${countMade(lines)} of ${plan.images.length} images made`);
  const halt = (error: ImgbatchError) => {
    run.stop ??= error;
    queue.clear();
  };
  const onAbort = () => halt(asError(signal?.reason));
  for (const line of lines.values()) reportEnded(reporter, line);
  signal?.throwIfAborted();
  if (again.some((line) => standingOf(line) === "lost")) {
    // With its old key, the service sends nothing any more. A kill must leave the image lost, or with a new key.
    for (const line of again.filter((line) => standingOf(line) === "lost"))
      renewRequestKey(runState, line.custom_id);
    await writeRunState(dir, runState);
    await rewriteResults(dir, [...lines.values()]);
  }
  const notesOf = new Map(again.map(({ custom_id, notes = [] }) => [custom_id, notes]));
  signal?.addEventListener("abort", onAbort, { once: true });

  const makeOne = async (image: PlannedImage, position: number) => {
    if (run.stop !== null) return;
    let isSent = false;
    const awaitTurnToSend = async (ending?: AbortSignal) => {
      await options.awaitTurnToSend?.(ending);
      isSent = true;
    };
    try {
      const idempotencyKey = requestKeyOf(runState, image.customId, position);
      const request = { ...options, consentMicroUsd, awaitTurnToSend, idempotencyKey };
      const line = withNotes(await make(request, image), notesOf.get(image.customId));
      lines.set(image.customId, line);
      run.failuresInARow = 0;
      await appendResult(dir, line);
      reportSaved(reporter, line);
      reportEnded(reporter, line);
    } catch (thrown) {
      const error = asError(thrown);
      if (signal?.aborted && error === signal.reason) {
        if (isSent) run.abandonedCount++;
        return;
      }
      if (ENDED.includes(error.code)) renewRequestKey(runState, image.customId);
      const line = withNotes(failedLine(image, error), notesOf.get(image.customId));
      lines.set(image.customId, line);
      reportEnded(reporter, line);
      const isOwn = OF_ONE_PROMPT.includes(error.code);
      run.failuresInARow = isOwn ? 0 : run.failuresInARow + 1;
      if (!isOwn) run.failure = error;
      // Of an upstream on this machine that does not run.
      const isOff = error.code === "PROVIDER_UNREACHABLE";
      const mayPass = errorEntry(error.code).exit === "temporary" && !isOutOfCapacity(error) && !isOff;
      if (!isOwn && (!mayPass || run.failuresInARow >= FAILURES_IN_A_ROW)) halt(error);
    } finally {
      reportProgress();
    }
  };
  if (keptCount > 0) reporter.note(`${keptCount} of ${plan.images.length} images are here already`);
  if (keptCount < plan.images.length) reportProgress();
  for (const [position, image] of plan.images.entries())
    if (!lines.has(image.customId)) void queue.add(() => makeOne(image, position));
  await queue.onIdle();
  signal?.removeEventListener("abort", onAbort);

  const ordered = plan.images.map((image) => lines.get(image.customId) ?? pendingLine(image));
  if (countMade(lines) > keptCount) await syncDirectory(join(dir, IMAGES_FOLDER));
  const input = await readRunInput(dir);
  const { hasRetry } = await writeResults(dir, ordered, input);
  if (run.stop === null) runState.finished_at = new Date(clock.nowMs()).toISOString();
  await writeRunState(dir, runState);
  const isMade = ({ customId }: PlannedImage) =>
    !kept.has(customId) && lines.get(customId)?.status === "success";
  const made = plan.images.filter(isMade);
  const { stop, failure, abandonedCount } = run;
  return { lines: ordered, keptCount, made, hasRetry, stop, failure, abandonedCount };
}

async function make(options: RealtimeRunOptions, image: PlannedImage): Promise<ResultLine> {
  const { dir, plan, service } = options;
  const images = [];
  for (const { sha256, mimeType } of image.references) {
    images.push({ mimeType, data: await readReference(dir, sha256) });
  }
  const { aspectRatio, size } = image;
  const prompt = textOf(image.prompt);
  const made = await generateImage(
    service.http,
    { ...plan.settings, aspectRatio, size, prompt, images },
    options,
  );
  return keep(dir, image, made);
}

async function keep(dir: string, image: PlannedImage, made: GeneratedImage): Promise<ResultLine> {
  const { data, mimeType, modelVersion, mayBePaidTwice } = made;
  const path = `${image.stem}.${IMAGE_EXTENSIONS[mimeType]}`;
  const { sha256, bytes } = factsOf(data, mimeType);
  const { file } = await writeVerified([data], join(dir, path), { sha256, bytes, crc32: null }, path);
  const files = [{ path, ...file }];
  const line = { custom_id: image.customId, status: "success" as const, model_version: modelVersion, files };
  return withNotes(line, mayBePaidTwice ? [PAID_TWICE_NOTE] : []);
}

function failedLine(image: PlannedImage, { code, message }: ImgbatchError): ResultLine {
  const isTwice = code === "REALTIME_OUTCOME_UNKNOWN";
  // The service speaks of the key, which is this program's.
  const error = { code, message: isTwice ? errorEntry(code).message : message, source: null };
  const line = {
    custom_id: image.customId,
    status: "failed" as const,
    model_version: null,
    files: [],
    error,
  };
  return withNotes(line, isTwice ? [PAID_TWICE_NOTE] : []);
}

function withNotes(line: ResultLine, more: readonly string[] = []): ResultLine {
  const notes = [...new Set([...(line.notes ?? []), ...more])];
  return notes.length === 0 ? line : { ...line, notes };
}

function pendingLine(image: PlannedImage): ResultLine {
  return { custom_id: image.customId, status: "pending", model_version: null, files: [] };
}

function reportSaved(reporter: RunReporter, { custom_id, files }: ResultLine): void {
  for (const { path, bytes, sha256 } of files)
    reporter.event?.({ event: "file_saved", batch_id: null, custom_id, path, bytes, sha256 });
}

function reportEnded(reporter: RunReporter, { custom_id, status, error }: ResultLine): void {
  reporter.event?.({ event: "item_ended", batch_id: null, custom_id, status, error: error ?? null });
}

function countMade(lines: ReadonlyMap<string, ResultLine>): number {
  return [...lines.values()].filter((line) => line.files.length > 0).length;
}

function asError(thrown: unknown): ImgbatchError {
  if (thrown instanceof ImgbatchError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ImgbatchError("INTERNAL", `Something went wrong inside imgbatch: ${message}`, { cause: thrown });
}
