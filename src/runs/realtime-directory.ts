import { appendFile, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../client/file-errors.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { IMAGE_EXTENSIONS, sniffImageType } from "../contract/image-formats.ts";
import { missingEnd } from "../contract/image-structure.ts";
import type { Clock } from "../kernel/clock.ts";
import { writeFileDurably } from "../kernel/files/durable-file.ts";
import { makeDirectory } from "../kernel/files/make-directory.ts";
import { claimDirectory, removeLeftovers, requireSameService } from "./directory/claim.ts";
import { mapRunInput, storeReferences, writeRunInput } from "./directory/input.ts";
import { IMAGES_FOLDER } from "./directory/names.ts";
import { RESULTS_FILE, type ResultLine, readResults } from "./directory/results.ts";
import { isImagePath, isIntact, isWholeResult, toJsonLines } from "./directory/run-files.ts";
import { newRunState, readRunState, writeRunState } from "./directory/run-state.ts";
import type { RunState } from "./directory/run-state-schema.ts";
import type { RunService } from "./directory/service-identity.ts";
import { changeLines, describeChanges, matchItems, toOldItem } from "./plan/update.ts";
import { beginRequestKeys, type PlannedImage, type RealtimePlan } from "./realtime-plan.ts";
import { factsOf, temporaryPath, tryToWrite } from "./save-image.ts";
import { standingOf } from "./standing.ts";

/** No service keeps the images of real-time requests. */
export const WITHOUT_RUN_STATE =
  "run the same command with another directory in --output: it makes and bills all images again";

/** Throws `SAVE_FAILED` when a folder cannot be written: an image that was paid for must be saved. */
async function requireWritable(folder: string): Promise<void> {
  await saving(folder, () => makeDirectory(folder));
  await saving(folder, () => tryToWrite(temporaryPath(folder, "test")));
}

/**
 * Prepares a directory for this run, or opens it when it is this run's already. A run may continue with another key, but
 * not with other prompts, and with another service only when all its images are here. Throws `DIRECTORY_CONFLICT`, `SAVE_FAILED`.
 */
export async function openRealtimeDirectory(
  dir: string,
  plan: RealtimePlan,
  service: RunService,
  clock: Clock,
): Promise<RunState> {
  const { inputSha256, settings } = plan;
  const { identity } = service;
  const before = await readRunState(dir, WITHOUT_RUN_STATE);
  const keyFingerprint = before?.key_fingerprint ?? service.keyFingerprint;
  if (before?.kind === "realtime" && before.input_sha256 !== inputSha256)
    await refuseEdited(dir, plan, before);
  const isElsewhere = before?.kind === "realtime" && before.base_url !== identity;
  if (isElsewhere && !(await hasAll(dir, plan.images))) requireSameService(dir, before, identity);
  const earlier = await claimDirectory(dir, inputSha256);
  const facts = {
    baseUrl: identity,
    keyFingerprint,
    upstream: service.upstream,
    inputSha256,
    isFresh: false,
    request: null,
    nowMs: clock.nowMs(),
  };
  const { model, aspectRatio: aspect_ratio, size, mimeType: mime_type } = settings;
  const asked = { kind: "realtime" as const, model, aspect_ratio, size, mime_type };
  const fresh = { ...newRunState({ ...facts, batches: [] }), ...asked };
  const runState: RunState = earlier ?? fresh;
  runState.finished_at = null;
  beginRequestKeys(runState);
  await writeRunState(dir, runState);
  await removeLeftovers(dir);
  await requireWritable(join(dir, IMAGES_FOLDER));
  if (plan.items !== null) {
    await storeReferences(
      dir,
      plan.items.flatMap((item) => item.references),
    );
    await writeRunInput(dir, plan.items);
  }
  return runState;
}

/** Throws `DIRECTORY_CONFLICT` with the prompts that differ from those of the run. */
async function refuseEdited(dir: string, { items, settings }: RealtimePlan, before: RunState): Promise<void> {
  if (items === null) return;
  const old = await mapRunInput(dir, toOldItem);
  const typed = items.map((item) => ({ ...item, customId: item.typedId }));
  const match = matchItems(old, typed, { isSameRequest: true });
  const isSame = before.model === settings.model;
  const others = isSame ? [] : [`the model was ${before.model}, not ${settings.model}`];
  const message = `${dir} belongs to a run with other prompts or options: ${describeChanges({ ...match, settings: others })}. Choose another directory with --output.`;
  throw new ImgbatchError("DIRECTORY_CONFLICT", message, { details: changeLines(match) });
}

/**
 * Finds the images that exist here, and the earlier failures that stay as they are, and rewrites the results with these
 * and the lost images alone. An image with a line in the results must match its hash. An image without a line was left by a killed process and
 * must be complete. `again` are the failed lines whose images are asked for again.
 */
export async function findFinished(
  dir: string,
  images: readonly PlannedImage[],
  staysFailed: (line: ResultLine) => boolean,
): Promise<{ found: Map<string, ResultLine>; again: ResultLine[] }> {
  const earlier = new Map((await readResults(dir)).map((line) => [line.custom_id, line]));
  const found = new Map<string, ResultLine>();
  const again: ResultLine[] = [];
  for (const image of images) {
    const line = earlier.get(image.customId);
    const [file] = line?.files ?? [];
    if (line !== undefined && file !== undefined && (await isIntact(dir, file))) {
      found.set(image.customId, line);
    } else if (file?.path.startsWith(`${image.stem}.`) && isImagePath(file.path)) {
      // A damaged line may name the file of another image, which was paid for: only its own file is removed.
      await dropFile(join(dir, file.path));
    } else {
      const orphan = await findWhole(dir, image);
      if (orphan !== null) found.set(image.customId, orphan);
      else if (line?.error !== undefined && staysFailed(line)) found.set(image.customId, line);
      else if (line?.error !== undefined) again.push(line);
    }
  }
  await rewriteResults(dir, [...found.values(), ...again.filter((line) => standingOf(line) === "lost")]);
  return { found, again };
}

export async function rewriteResults(dir: string, lines: readonly ResultLine[]): Promise<void> {
  const path = join(dir, RESULTS_FILE);
  await saving(path, () => writeFileDurably(path, toJsonLines(lines)));
}

/** Whether every image is on disk as the results say. */
async function hasAll(dir: string, images: readonly PlannedImage[]): Promise<boolean> {
  const lines = new Map((await readResults(dir)).map((line) => [line.custom_id, line]));
  for (const { customId } of images) {
    const line = lines.get(customId);
    if (line === undefined || !(await isWholeResult(dir, line))) return false;
  }
  return true;
}

/** Appends a finished image to the results, so that a later run knows its hash. */
export async function appendResult(dir: string, line: ResultLine): Promise<void> {
  const path = join(dir, RESULTS_FILE);
  await saving(path, () => appendFile(path, toJsonLines([line])));
}

async function findWhole(dir: string, image: PlannedImage): Promise<ResultLine | null> {
  for (const extension of Object.values(IMAGE_EXTENSIONS)) {
    const path = `${image.stem}.${extension}`;
    const data = await readFile(join(dir, path)).catch(() => null);
    const mimeType = data === null ? null : sniffImageType(data);
    if (data === null || mimeType === null || missingEnd(data, mimeType) !== null) continue;
    const files = [{ path, ...factsOf(data, mimeType) }];
    return { custom_id: image.customId, status: "success", model_version: null, files };
  }
  return null;
}

async function dropFile(path: string): Promise<void> {
  await saving(path, () => rm(path, { force: true }));
}
