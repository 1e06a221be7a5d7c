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
import { microsToNumber, numberToMicros, sumCosts } from "../kernel/money.ts";
import type { DirectOutcome, RunOutcome } from "./collect-run.ts";
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
import type { Asked } from "./plan/choose-model.ts";
import type { RealtimePlan } from "./plan/plan.ts";
import { textOf } from "./plan/spool.ts";
import { changedRealtimeError } from "./plan/update.ts";
import { requireWritable } from "./save-image.ts";
import type { ImageConsent, StartedRun } from "./send.ts";
import { stands } from "./standing.ts";
import { otherOriginError } from "./start.ts";
import type { SoFar, Transport } from "./transport.ts";

type PlannedImage = RealtimePlan["images"][number];

export interface DirectOptions extends GenerateOptions {
  plan: RealtimePlan;
  dir: string;
  service: RunService;
  /** Requests under way at once. */
  concurrency: number;
  clock: Clock;
  reporter: RunReporter;
  /** Returns the price of an image in micro-dollars; null when the service does not say. */
  costOf: (image: Asked) => number | null;
  /** Whether the prices are no real money, because the images are drawn. */
  isPlay: boolean;
  /**
   * Called before anything is sent, with the images that are missing; may throw to refuse. Returns the consent for an image;
   * null if none is needed.
   */
  approve?: (images: readonly PlannedImage[]) => Promise<ImageConsent | null>;
  /** Called when `signal` ends the run, with the number of requests under way. Default: nothing is called. */
  onStop?: (underWay: number) => void;
  /** The failures of an earlier run that stay as they are. Default: images that two requests may have paid for. */
  staysFailed?: (line: ResultLine) => boolean;
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
 * they may be billed. Only an abort ends them: that of `answerSignal`, if given. The results on disk always name every saved
 * image. A run may continue with another key, but not with other prompts, and with another service only when all its images
 * are here. `send` throws `DIRECTORY_CONFLICT` and `SAVE_FAILED`.
 */
export function direct(options: DirectOptions): Transport {
  const run = new DirectRun(options);
  return {
    send: () => run.send(),
    untilDone: (started, onSaved) => run.untilDone(started, onSaved),
    fetch: () => run.writeOutcome(),
  };
}

class DirectRun {
  readonly #options: DirectOptions;
  readonly #queue: PQueue;
  /** The results so far, by the id of the image. */
  #lines = new Map<string, ResultLine>();
  /** The images that an earlier command has made. */
  #kept: ReadonlySet<string> = new Set();
  /** The notes of failures whose images are asked for again. */
  #notes = new Map<string, string[]>();
  readonly #failed: PlannedImage[] = [];
  readonly #underWay = new Set<PlannedImage>();
  #failuresInARow = 0;
  readonly #ended: Pick<DirectOutcome, "stop" | "failure" | "abandonedCount"> = {
    stop: null,
    failure: null,
    abandonedCount: 0,
  };
  #state: RunState | null = null;
  #input: RunInput | null = null;
  #onSaved: (soFar: SoFar) => void = () => {};

  constructor(options: DirectOptions) {
    this.#options = options;
    this.#queue = new PQueue({ concurrency: options.concurrency });
  }

  async send(): Promise<StartedRun> {
    const { plan, dir, reporter, signal } = this.#options;
    const { staysFailed = (line: ResultLine) => stands(line, "lost", "unknown") } = this.#options;
    const earlier = await checkRun(this.#options);
    const { found, again, replaced } = await findFinished(dir, plan.images, staysFailed);
    this.#lines = found;
    this.#kept = new Set(
      [...found.values()].flatMap((line) => (stands(line, "here") ? [line.custom_id] : [])),
    );
    const missing = plan.images.filter(({ customId }) => !found.has(customId));
    if (earlier !== null && missing.length > 0)
      requireSameService(dir, earlier, this.#options.service.identity);
    // A refused run that is new leaves nothing behind.
    const consentOf = (await this.#options.approve?.(missing)) ?? null;
    const state = await openDirectory(this.#options);
    this.#state = state;
    for (const path of replaced) {
      await moveChangedAway(dir, path, reporter);
      await removeFile(join(dir, path));
    }
    for (const line of found.values()) reportEnded(reporter, line);
    signal?.throwIfAborted();
    // With its old key, the service sends nothing any more for a lost image. A kill must leave it lost, or with a new key.
    for (const line of again) if (stands(line, "lost", "unknown")) renewRequestKey(state, line.custom_id);
    await writeRunState(dir, state);
    await writeJsonLines(join(dir, RESULTS_FILE), [...found.values()]);
    this.#input = await readRunInput(dir);
    this.#notes = new Map(again.map(({ custom_id, notes = [] }) => [custom_id, notes]));
    const { size } = this.#kept;
    if (size > 0) reporter.note(`${size} of ${plan.images.length} images are here already`);
    if (size < plan.images.length) this.#reportProgress();
    for (const [position, image] of plan.images.entries())
      if (!found.has(image.customId))
        void this.#queue.add(() => this.#makeOne(image, position, state, consentOf));
    return { state, batches: [], replayed: false, found: new Map() };
  }

  async untilDone(started: StartedRun, onSaved: (soFar: SoFar) => void): Promise<StartedRun> {
    const { signal } = this.#options;
    this.#onSaved = onSaved;
    const onAbort = () => {
      this.#halt(asError(signal?.reason));
      this.#options.onStop?.(this.#underWay.size);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) onAbort();
    await this.#queue.onIdle();
    signal?.removeEventListener("abort", onAbort);
    return started;
  }

  async writeOutcome(): Promise<RunOutcome> {
    const { plan, dir, clock, costOf, isPlay } = this.#options;
    const [state, input] = [this.#state, this.#input];
    if (state === null || input === null) throw new ImgbatchError("INTERNAL", "The run has not begun.");
    const lines = plan.images.map(({ customId }) => this.#lines.get(customId) ?? lineOf(customId, "pending"));
    const isMade = ({ customId }: PlannedImage) =>
      !this.#kept.has(customId) && this.#lines.get(customId)?.status === "success";
    const made = plan.images.filter(isMade);
    if (made.length > 0) await syncDirectory(join(dir, IMAGES_FOLDER));
    const { hasRetry, failedAt } = await writeResults(dir, lines, input);
    if (this.#ended.stop === null) state.finished_at = new Date(clock.nowMs()).toISOString();
    await writeRunState(dir, state);
    const sum = sumCosts(made.map((image) => ({ micros: costOf(image), isPlay })));
    // A failure has no price here, but its upstream may bill it.
    const costs = new Map<string, number>([
      ...made.map((image) => [image.customId, costOf(image) ?? 0] as const),
      ...this.#failed.map(({ customId }) => [customId, 0] as const),
    ]);
    const asked = lines.flatMap((line) => {
      const micros = costs.get(line.custom_id);
      return micros === undefined ? [] : { ...line, cost: microsToNumber(micros) };
    });
    return {
      dir,
      batches: [],
      deciding: [],
      lines,
      fetchedCount: made.length,
      hasRetry,
      failedAt,
      paidNowMicroUsd: sum === null || isPlay ? 0 : sum.micros,
      unknown: new Map(),
      direct: { keptCount: this.#kept.size, asked, cost: sum && { ...sum, isPlay }, isPlay, ...this.#ended },
    };
  }

  #halt(error: ImgbatchError): void {
    this.#ended.stop ??= error;
    this.#queue.clear();
  }

  #reportProgress(): void {
    const { plan, reporter } = this.#options;
    const made = [...this.#lines.values()].filter((line) => line.files.length > 0);
    reporter.progress(`${made.length} of ${plan.images.length} images made`);
  }

  async #makeOne(
    image: PlannedImage,
    position: number,
    state: RunState,
    consentOf: ImageConsent | null,
  ): Promise<void> {
    const { plan, dir, reporter, signal } = this.#options;
    if (this.#ended.stop !== null) return;
    let isSent = false;
    let billedMicroUsd: number | null = null;
    const onBilled = (usd: number) => {
      billedMicroUsd = (billedMicroUsd ?? 0) + numberToMicros(usd);
    };
    const awaitTurnToSend = async (ending?: AbortSignal) => {
      await this.#options.awaitTurnToSend?.(ending);
      isSent = true;
      this.#underWay.add(image);
    };
    const note = (line: ResultLine) => {
      const notes = [...new Set([...(line.notes ?? []), ...(this.#notes.get(image.customId) ?? [])])];
      const noted = {
        ...line,
        ...(billedMicroUsd !== null && { upstream_cost: microsToNumber(billedMicroUsd) }),
        ...(notes.length > 0 && { notes }),
      };
      this.#lines.set(image.customId, noted);
      return noted;
    };
    try {
      const consentMicroUsd = consentOf?.(image) ?? null;
      const idempotencyKey = requestKeyOf(state, image.customId, position);
      const how = { ...this.#options, consentMicroUsd, awaitTurnToSend, idempotencyKey, onBilled };
      const line = note(await make(how, image));
      this.#failuresInARow = 0;
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
      const soFar = plan.images.flatMap(({ customId }) => this.#lines.get(customId) ?? []);
      if (this.#input !== null) this.#onSaved({ state, lines: soFar, input: this.#input });
    } catch (thrown) {
      const error = asError(thrown);
      if (signal?.aborted && error === signal.reason) {
        if (isSent) this.#ended.abandonedCount++;
        return;
      }
      if (ENDED.includes(error.code)) renewRequestKey(state, image.customId);
      reportEnded(reporter, note(failedLine(image, error)));
      this.#failed.push(image);
      const isOwn = OF_ONE_PROMPT.includes(error.code);
      this.#failuresInARow = isOwn ? 0 : this.#failuresInARow + 1;
      if (isOwn) return;
      this.#ended.failure = error;
      // Of an upstream on this machine that does not run.
      const isOff = error.code === "PROVIDER_UNREACHABLE";
      const { because = "" } = error;
      const needsPerson = isWaitingCode(because) && WAITING_CODES[because] !== "temporary";
      const isTemporary = errorEntry(error.code).exit === "temporary";
      const mayPass = isTemporary && !isOutOfCapacity(error) && !isOff && !needsPerson;
      if (!mayPass || this.#failuresInARow >= FAILURES_IN_A_ROW) this.#halt(error);
    } finally {
      this.#underWay.delete(image);
      this.#reportProgress();
    }
  }
}

async function make(options: DirectOptions, image: PlannedImage): Promise<ResultLine> {
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

type Run = Pick<DirectOptions, "dir" | "plan" | "service" | "clock">;

/** Checks whether the directory is free, or that of this run, and returns its run state. Writes nothing. */
async function checkRun({ dir, plan }: Run): Promise<RunState | null> {
  const { inputSha256, items, settings } = plan;
  const before = await readRunState(dir, WITHOUT_RUN_STATE);
  const origin = settings.origin ?? undefined;
  if (before?.kind === "realtime" && before.origin !== origin)
    throw otherOriginError(dir, [before.origin, origin]);
  if (before?.kind === "realtime" && before.input_sha256 !== inputSha256 && items !== null) {
    const isSame = before.model === settings.model;
    const others = isSame ? [] : [`the model was ${before.model}, not ${settings.model}`];
    throw await changedRealtimeError(dir, items, others);
  }
  return checkDirectory(dir, inputSha256);
}

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
