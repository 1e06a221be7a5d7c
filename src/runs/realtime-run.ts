import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import PQueue from "p-queue";
import { removeFile, saving } from "../client/file-errors.ts";
import { type GenerateOptions, generateImage } from "../client/realtime.ts";
import { BILLED_NOTE, PAID_TWICE_NOTE } from "../contract/batch-api.ts";
import { type ErrorCode, errorEntry, ImgbatchError, LOST_BEFORE, TWO_LOST } from "../contract/errors.ts";
import {
  DIFFERS,
  IMAGE_EXTENSIONS,
  type ImageMimeType,
  type ImageSize,
  pixelSize,
  readImageHeader,
  readPixels,
  shownSize,
  sniffImageType,
} from "../contract/image-formats.ts";
import { missingEnd } from "../contract/image-structure.ts";
import { isWaitingCode, WAITING_CODES } from "../contract/waiting.ts";
import { isOutOfCapacity } from "../http/retries.ts";
import type { Clock } from "../kernel/clock.ts";
import { appendText, syncDirectory } from "../kernel/files.ts";
import { microsToNumber, numberToMicros } from "../kernel/money.ts";
import type { RunOutcome } from "./collect-run.ts";
import { checkDirectory, claimDirectory, removeLeftovers, requireSameService } from "./directory/claim.ts";
import { type RunInput, readReference, readRunInput, writeInput } from "./directory/input.ts";
import { IMAGES_FOLDER } from "./directory/names.ts";
import {
  moveChangedAway,
  RESULTS_FILE,
  type ResultLine,
  readResults,
  writeResults,
} from "./directory/results.ts";
import {
  inspect,
  isImagePath,
  isIntact,
  NOTHING_KNOWN,
  writeJsonLines,
  writeVerified,
} from "./directory/run-files.ts";
import type { RunReporter, RunService } from "./directory/run-service.ts";
import { newRunState, readRunState, writeRunState } from "./directory/run-state.ts";
import type { RunState } from "./directory/run-state-schema.ts";
import type { RealtimePlan } from "./plan/plan.ts";
import { textOf } from "./plan/spool.ts";
import { changedRealtimeError } from "./plan/update.ts";
import { requireWritable } from "./save-image.ts";
import type { ImageConsent } from "./send.ts";
import { stands } from "./standing.ts";

type PlannedImage = RealtimePlan["images"][number];

export interface RealtimeRunOptions extends GenerateOptions {
  plan: RealtimePlan;
  dir: string;
  service: RunService;
  /** Requests under way at once. */
  concurrency: number;
  clock: Clock;
  reporter: RunReporter;
  /**
   * Called before anything is sent, with the images that are missing; may throw to refuse. Returns the consent for an image;
   * null if none is needed.
   */
  approve?: (images: readonly PlannedImage[]) => Promise<ImageConsent | null>;
  /** Called when `signal` ends the run, with the number of requests under way. Default: nothing is called. */
  onStop?: (underWay: number) => void;
  /** Called each time an image was saved, with all results so far. */
  onSaved?: (soFar: { state: RunState; lines: readonly ResultLine[]; input: RunInput }) => void;
  /** The failures of an earlier run that stay as they are. Default: images that two requests may have paid for. */
  staysFailed?: (line: ResultLine) => boolean;
}

export interface RealtimeOutcome extends Pick<RunOutcome, "dir" | "lines" | "hasRetry"> {
  /** Images that an earlier run had made. */
  keptCount: number;
  /** The images that this run has made, and those that it has asked for and that have failed. */
  made: PlannedImage[];
  failed: PlannedImage[];
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
const OF_ONE_PROMPT: readonly ErrorCode[] = [
  "IMAGE_REFUSED",
  "NO_IMAGES",
  "REALTIME_INVALID_ARGUMENT",
  "REALTIME_OUTCOME_UNKNOWN",
  "REQUEST_TOO_LARGE",
];

/**
 * Makes the images of a run that are not in its directory yet, each with a request of its own. When an error stops the run
 * (no capacity, no money, no permission, a full disk, failures in a row), requests under way are still waited for, since
 * they may be billed. Only an abort ends them: that of `answerSignal`, if given. The results on disk always name every saved image. A run may continue with
 * another key, but not with other prompts, and with another service only when all its images are here. Throws
 * `DIRECTORY_CONFLICT`, `SAVE_FAILED`.
 */
export async function runRealtime(options: RealtimeRunOptions): Promise<RealtimeOutcome> {
  const { plan, dir, clock, reporter, signal } = options;
  const { staysFailed = (line: ResultLine) => stands(line, "lost", "unknown") } = options;
  const earlier = await checkRun(options);
  const { found: lines, again, replaced } = await findFinished(dir, plan.images, staysFailed);
  const kept = new Set([...lines.values()].flatMap((line) => (stands(line, "here") ? [line.custom_id] : [])));
  const missing = plan.images.filter(({ customId }) => !lines.has(customId));
  if (earlier !== null && missing.length > 0) requireSameService(dir, earlier, options.service.identity);
  // A refused run that is new leaves nothing behind.
  const consentOf = (await options.approve?.(missing)) ?? null;
  const runState = await openDirectory(options);
  for (const path of replaced) {
    await moveChangedAway(dir, path, reporter);
    await removeFile(join(dir, path));
  }
  for (const line of lines.values()) reportEnded(reporter, line);
  signal?.throwIfAborted();
  // With its old key, the service sends nothing any more for a lost image. A kill must leave it lost, or with a new key.
  for (const line of again) if (stands(line, "lost", "unknown")) renewRequestKey(runState, line.custom_id);
  await writeRunState(dir, runState);
  await writeJsonLines(join(dir, RESULTS_FILE), [...lines.values()]);

  const input = await readRunInput(dir);
  const notesOf = new Map(again.map(({ custom_id, notes = [] }) => [custom_id, notes]));
  const queue = new PQueue({ concurrency: options.concurrency });
  const ended: Pick<RealtimeOutcome, "stop" | "failure" | "abandonedCount"> = {
    stop: null,
    failure: null,
    abandonedCount: 0,
  };
  const failed: PlannedImage[] = [];
  let failuresInARow = 0;
  const underWay = new Set<PlannedImage>();
  const madeCount = () => [...lines.values()].filter((line) => line.files.length > 0).length;
  const reportProgress = () => reporter.progress(`${madeCount()} of ${plan.images.length} images made`);
  const halt = (error: ImgbatchError) => {
    ended.stop ??= error;
    queue.clear();
  };
  const makeOne = async (image: PlannedImage, position: number) => {
    if (ended.stop !== null) return;
    let isSent = false;
    let billedMicroUsd: number | null = null;
    const onBilled = (usd: number) => {
      billedMicroUsd = (billedMicroUsd ?? 0) + numberToMicros(usd);
    };
    const awaitTurnToSend = async (ending?: AbortSignal) => {
      await options.awaitTurnToSend?.(ending);
      isSent = true;
      underWay.add(image);
    };
    const note = (line: ResultLine) => {
      const notes = [...new Set([...(line.notes ?? []), ...(notesOf.get(image.customId) ?? [])])];
      const noted = {
        ...line,
        ...(billedMicroUsd !== null && { upstream_cost: microsToNumber(billedMicroUsd) }),
        ...(notes.length > 0 && { notes }),
      };
      lines.set(image.customId, noted);
      return noted;
    };
    try {
      const consentMicroUsd = consentOf?.(image) ?? null;
      const idempotencyKey = requestKeyOf(runState, image.customId, position);
      const line = note(
        await make({ ...options, consentMicroUsd, awaitTurnToSend, idempotencyKey, onBilled }, image),
      );
      failuresInARow = 0;
      // So that a later run knows the hash of its file.
      const path = join(dir, RESULTS_FILE);
      await saving(path, () => appendText(path, `${JSON.stringify(line)}\n`));
      for (const { path, bytes, sha256 } of line.files)
        reporter.event?.({
          event: "file_saved",
          batch_id: null,
          custom_id: image.customId,
          path,
          bytes,
          sha256,
        });
      reportEnded(reporter, line);
      const soFar = plan.images.flatMap(({ customId }) => lines.get(customId) ?? []);
      options.onSaved?.({ state: runState, lines: soFar, input });
    } catch (thrown) {
      const error = asError(thrown);
      if (signal?.aborted && error === signal.reason) {
        if (isSent) ended.abandonedCount++;
        return;
      }
      if (ENDED.includes(error.code)) renewRequestKey(runState, image.customId);
      reportEnded(reporter, note(failedLine(image, error)));
      failed.push(image);
      const isOwn = OF_ONE_PROMPT.includes(error.code);
      failuresInARow = isOwn ? 0 : failuresInARow + 1;
      if (isOwn) return;
      ended.failure = error;
      // Of an upstream on this machine that does not run.
      const isOff = error.code === "PROVIDER_UNREACHABLE";
      const { because = "" } = error;
      const needsPerson = isWaitingCode(because) && WAITING_CODES[because] !== "temporary";
      const isTemporary = errorEntry(error.code).exit === "temporary";
      const mayPass = isTemporary && !isOutOfCapacity(error) && !isOff && !needsPerson;
      if (!mayPass || failuresInARow >= FAILURES_IN_A_ROW) halt(error);
    } finally {
      underWay.delete(image);
      reportProgress();
    }
  };
  if (kept.size > 0) reporter.note(`${kept.size} of ${plan.images.length} images are here already`);
  if (kept.size < plan.images.length) reportProgress();
  const onAbort = () => {
    halt(asError(signal?.reason));
    options.onStop?.(underWay.size);
  };
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  for (const [position, image] of plan.images.entries())
    if (!lines.has(image.customId)) void queue.add(() => makeOne(image, position));
  await queue.onIdle();
  signal?.removeEventListener("abort", onAbort);

  const all = plan.images.map(({ customId }) => lines.get(customId) ?? lineOf(customId, "pending"));
  if (madeCount() > kept.size) await syncDirectory(join(dir, IMAGES_FOLDER));
  const { hasRetry } = await writeResults(dir, all, input);
  if (ended.stop === null) runState.finished_at = new Date(clock.nowMs()).toISOString();
  await writeRunState(dir, runState);
  const isMade = ({ customId }: PlannedImage) =>
    !kept.has(customId) && lines.get(customId)?.status === "success";
  return {
    dir,
    lines: all,
    hasRetry,
    keptCount: kept.size,
    made: plan.images.filter(isMade),
    failed,
    ...ended,
  };
}

async function make(options: RealtimeRunOptions, image: PlannedImage): Promise<ResultLine> {
  const { dir, plan, service } = options;
  const images = [];
  for (const { sha256, mimeType } of image.references) {
    images.push({ mimeType, data: await readReference(dir, sha256) });
  }
  const { aspect_ratio: aspectRatio = null, size = null, seed = null, customId } = image;
  const { quality = null, background = null, negative_prompt: negativePrompt = null } = image;
  const prompt = textOf(image.prompt);
  const { model, mimeType: asked } = plan.settings;
  const shape = { aspectRatio, size, seed, quality, background, negativePrompt };
  const request = { model, ...shape, mimeType: asked, prompt, images };
  const { data, mimeType, modelVersion, mayBePaidTwice } = await generateImage(
    service.http,
    request,
    options,
  );
  const path = `${image.stem}.${IMAGE_EXTENSIONS[mimeType]}`;
  const { file } = await writeVerified([data], join(dir, path), NOTHING_KNOWN, path);
  const line = {
    ...lineOf(customId, "success"),
    model_version: modelVersion,
    files: [{ path, ...file }],
  };
  const notes = [...(mayBePaidTwice ? [PAID_TWICE_NOTE] : []), ...differences(data, { size, type: asked })];
  return notes.length > 0 ? { ...line, notes } : line;
}

/** Returns a note for each difference between an image and what was asked for: its type, and its pixels where they were named. */
function differences(
  data: Buffer,
  { size, type }: { size: ImageSize | null; type: ImageMimeType | null },
): string[] {
  const header = readImageHeader(data);
  if (header === null) return [];
  const asked = size === null ? null : readPixels(size);
  const { widthPx, heightPx } = shownSize(header);
  const isOther = asked !== null && widthPx !== null && heightPx !== null;
  return [
    ...(type === null || type === header.mimeType
      ? []
      : [`${DIFFERS}${type}, the service sent ${header.mimeType}`]),
    ...(isOther && (widthPx !== asked.widthPx || heightPx !== asked.heightPx)
      ? [`${DIFFERS}${pixelSize(asked)} pixels, the service sent ${widthPx}x${heightPx}`]
      : []),
  ];
}

function failedLine({ customId }: PlannedImage, { code, message }: ImgbatchError): ResultLine {
  const line = lineOf(customId, "failed");
  if (code !== "REALTIME_OUTCOME_UNKNOWN") {
    const notes = message.endsWith(LOST_BEFORE) ? { notes: [BILLED_NOTE] } : {};
    return { ...line, error: { code, message, source: null }, ...notes };
  }
  const isTwice = message.startsWith(TWO_LOST);
  // The service speaks of the key, which is this program's.
  const [said = message] = message.split(" Use another Idempotency-Key");
  return {
    ...line,
    error: { code, message: said, source: null },
    notes: [isTwice ? PAID_TWICE_NOTE : BILLED_NOTE],
  };
}

function lineOf(custom_id: string, status: "success" | "failed" | "pending"): ResultLine {
  return { custom_id, status, model_version: null, files: [] };
}

function reportEnded(reporter: RunReporter, { custom_id, status, error }: ResultLine): void {
  reporter.event?.({ event: "item_ended", batch_id: null, custom_id, status, error: error ?? null });
}

function asError(thrown: unknown): ImgbatchError {
  if (thrown instanceof ImgbatchError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ImgbatchError("INTERNAL", `Something went wrong inside imgbatch: ${message}`, { cause: thrown });
}

/** No service keeps the images of real-time requests. */
const WITHOUT_RUN_STATE =
  "run the same command with another directory in --output: it makes and bills all images again";

type Run = Pick<RealtimeRunOptions, "dir" | "plan" | "service" | "clock">;

/** Checks whether the directory is free, or that of this run, and returns its run state. Writes nothing. */
async function checkRun({ dir, plan }: Run): Promise<RunState | null> {
  const { inputSha256, items, settings } = plan;
  const before = await readRunState(dir, WITHOUT_RUN_STATE);
  if (before?.kind === "realtime" && before.origin !== (settings.origin ?? undefined)) {
    const [there = VENDORS, here = VENDORS] = [before.origin, settings.origin ?? undefined];
    const message = `${dir} belongs to a run whose images come from ${there}, not ${here}. Nothing was sent.`;
    throw new ImgbatchError("DIRECTORY_CONFLICT", message);
  }
  if (before?.kind === "realtime" && before.input_sha256 !== inputSha256 && items !== null) {
    const isSame = before.model === settings.model;
    const others = isSame ? [] : [`the model was ${before.model}, not ${settings.model}`];
    throw await changedRealtimeError(dir, items, others);
  }
  return checkDirectory(dir, inputSha256);
}

const VENDORS = "the vendor's own address";

/** Prepares a directory for this run, or opens it again. The key of the first request is on disk when this resolves. */
async function openDirectory({ dir, plan, service, clock }: Run): Promise<RunState> {
  const { inputSha256, settings, items } = plan;
  const earlier = await claimDirectory(dir, inputSha256);
  const { model, mimeType: mime_type } = settings;
  const { aspect_ratio = null, size = null } = settings.options;
  const facts = { input_sha256: inputSha256, is_fresh: false, request: null, batches: [] };
  const runState: RunState = earlier ?? {
    ...newRunState(service, clock, facts),
    kind: "realtime",
    model,
    aspect_ratio,
    size,
    mime_type,
    ...(settings.origin && { origin: settings.origin }),
  };
  runState.finished_at = null;
  runState.request_keys ??= { seed: randomBytes(16).toString("hex"), renewed: {} };
  await writeRunState(dir, runState);
  await removeLeftovers(dir);
  // An image that was paid for must be saved.
  const images = join(dir, IMAGES_FOLDER);
  await requireWritable(images, "test");
  if (items !== null) await writeInput(dir, items);
  return runState;
}

/**
 * Finds the images that exist here, and the earlier failures that stay as they are. An image with a line in the results
 * must match its hash. An image without a line was left by a killed process and must be complete. `again` are the failed
 * lines whose images are asked for again, `replaced` the damaged files that new ones replace.
 */
async function findFinished(
  dir: string,
  images: readonly PlannedImage[],
  staysFailed: (line: ResultLine) => boolean,
): Promise<{ found: Map<string, ResultLine>; again: ResultLine[]; replaced: string[] }> {
  const earlier = new Map((await readResults(dir)).map((line) => [line.custom_id, line]));
  const found = new Map<string, ResultLine>();
  const again: ResultLine[] = [];
  const replaced: string[] = [];
  for (const image of images) {
    const line = earlier.get(image.customId);
    const [file] = line?.files ?? [];
    if (line !== undefined && file !== undefined && (await isIntact(dir, file))) {
      found.set(image.customId, line);
    } else if (file?.path.startsWith(`${image.stem}.`) && isImagePath(file.path)) {
      // A damaged line may name the file of another image, which was paid for: only its own file is removed.
      replaced.push(file.path);
    } else {
      const orphan = await findWhole(dir, image);
      if (orphan !== null) found.set(image.customId, orphan);
      else if (line?.error !== undefined && staysFailed(line)) found.set(image.customId, line);
      else if (line?.error !== undefined) again.push(line);
    }
  }
  return { found, again, replaced };
}

async function findWhole(dir: string, { customId, stem }: PlannedImage): Promise<ResultLine | null> {
  for (const extension of Object.values(IMAGE_EXTENSIONS)) {
    const path = `${stem}.${extension}`;
    const data = await readFile(join(dir, path)).catch(() => null);
    const mimeType = data === null ? null : sniffImageType(data);
    if (data === null || mimeType === null || missingEnd(data, mimeType) !== null) continue;
    const { file } = await inspect([data], NOTHING_KNOWN, path);
    return { ...lineOf(customId, "success"), files: [{ path, ...file }] };
  }
  return null;
}

/** The service has ended the request: with the same key it would give this answer again. */
const ENDED: readonly ErrorCode[] = [
  "IMAGE_REFUSED",
  "NO_IMAGES",
  "REALTIME_PROVIDER_FAILED",
  "REALTIME_PROVIDER_UNREACHABLE",
  "REALTIME_TIMEOUT",
  "REALTIME_IDEMPOTENCY_CONFLICT",
];

/**
 * Returns the idempotency key of the image at this position of the plan. The same run continues with the same keys, so that
 * an image whose answer was lost is not billed again.
 */
function requestKeyOf({ request_keys }: RunState, customId: string, position: number): string {
  if (request_keys === undefined) throw new Error("the run has no keys");
  const { seed, renewed } = request_keys;
  return `ib1-run-${seed}-${position + 1}-${renewed[customId] ?? 0}`;
}

/** Makes the next request for an image a new one. */
function renewRequestKey({ request_keys }: RunState, customId: string): void {
  if (request_keys === undefined) return;
  request_keys.renewed[customId] = (request_keys.renewed[customId] ?? 0) + 1;
}
