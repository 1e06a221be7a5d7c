import { join } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import { damaged, type RunInput, readRunInput, referencePath, requireUndamaged } from "../directory/input.ts";
import { linePieces } from "../directory/json-lines.ts";
import { INPUT_FILE } from "../directory/names.ts";
import type { ResultLine } from "../directory/results.ts";
import { RUN_STATE_FILE } from "../directory/run-state.ts";
import type { RunState } from "../directory/run-state-schema.ts";
import { isFailed, isLost, isMissing, isRefused, isUnknownHere } from "../outcome/standing.ts";
import { type Chunk, planRun, type RunRequest } from "../plan/plan.ts";
import { type PromptItem, readPromptFiles } from "../plan/prompt-files.ts";
import { retriedId } from "./retried-id.ts";

/** A batch of images to be made again. */
export interface RetryPart {
  request: RunRequest;
  chunk: Chunk;
  /** The images as the run calls them, in the order of the chunk. */
  ids: string[];
}

export interface RetryPlan {
  parts: RetryPart[];
  /** Failed images that are left out because their prompts were refused. */
  refused: number;
  /** Failed images whose prompts are not in the directory. */
  unknown: number;
  /** Images that are not here and may still come, or, unless they are included, are lost. */
  missing: number;
  /** Images of batches that the service does not know. */
  unknownHere: number;
}

/**
 * Plans a retry of a run: its failed images, as one or more batches for each batch in which they failed. The idempotency
 * keys come from the content, so that the same retry never makes a second batch.
 */
export async function planRetry(
  run: { dir: string; state: RunState; limits: Limits },
  lines: readonly ResultLine[],
  include: { refused: boolean; lost: boolean },
): Promise<RetryPlan> {
  const failed = lines.filter((line) => isFailed(line) || (include.lost && isLost(line)));
  const wanted = failed.filter((line) => include.refused || !isRefused(line));
  const input = await readRunInput(run.dir);
  if (wanted.some((line) => !input.has(line.custom_id))) requireUndamaged(input);
  const known = wanted.filter((line) => input.has(line.custom_id));
  const parts: RetryPart[] = [];
  for (const batchId of new Set(known.map((line) => line.batch_id))) {
    const ids = known.filter((line) => line.batch_id === batchId).map((line) => line.custom_id);
    parts.push(...(await partsOf(run, batchId === "" ? null : batchId, ids)));
  }
  const sent = new Set(wanted);
  const missing = lines.filter((line) => isMissing(line) && !sent.has(line)).length;
  const unknownHere = lines.filter(isUnknownHere).length;
  const counts = { refused: failed.length - wanted.length, unknown: wanted.length - known.length, missing };
  return { parts, ...counts, unknownHere };
}

/**
 * Returns the batches that make these images of the input (default: `input.jsonl`). Throws `USAGE` when the run state lacks the settings of the request,
 * and `DIRECTORY_CONFLICT` when the input of the run is damaged.
 */
export async function partsOf(
  run: { dir: string; state: RunState; limits: Limits; input?: string },
  parentId: string | null,
  ids: readonly string[],
): Promise<RetryPart[]> {
  const { dir, state: runState, limits, input: inputName = INPUT_FILE } = run;
  if (runState.request === null) {
    const message = `${RUN_STATE_FILE} does not say how these images were asked for: submit the prompts again.`;
    throw new ImgbatchError("USAGE", message);
  }
  const input = await readRunInput(dir, inputName);
  const items = await readAgain({ dir, limits, path: join(dir, inputName) }, input, ids);
  const { model, task_name: name, response_mime_type: mimeType, metadata } = runState.request;
  const request: RunRequest = { model, name, parentId, mimeType, metadata, items };
  const own = new Map(ids.map((id) => [retriedId(id), id]));
  return planRun(request, limits).chunks.map((chunk) => ({
    request,
    chunk,
    ids: chunk.items.map((item) => own.get(item.customId) ?? item.customId),
  }));
}

/**
 * Reads and checks the prompts of these images of a run again, one item for each, in order. Throws `DIRECTORY_CONFLICT` when the
 * input of the run is damaged.
 */
export async function readAgain(
  { dir, limits, path }: { dir: string; limits: Limits; path: string },
  input: RunInput,
  ids: readonly string[],
): Promise<PromptItem[]> {
  const unknown = ids.find((id) => !input.has(id));
  if (unknown !== undefined) {
    requireUndamaged(input);
    throw damaged(`${path} does not hold the prompt of ${JSON.stringify(unknown)}`);
  }
  const lines = function* () {
    for (const id of ids) yield { ...input.get(id), custom_id: retriedId(id), source: undefined };
  };
  const stdin = async function* () {
    for await (const piece of linePieces(lines())) yield Buffer.from(piece);
  };
  const source = { name: "-", cwd: dir, stdin };
  const items = await readPromptFiles([source], { limits, defaultCount: 1 }).catch((error) => {
    throw ofRunInput(error, path, input, ids);
  });
  requireOwnReferences(dir, items);
  return items;
}

/** Turns a problem of the re-read lines into one of the run's input, where they come from. */
function ofRunInput(error: unknown, path: string, input: RunInput, ids: readonly string[]): unknown {
  if (!(error instanceof ImgbatchError) || error.code !== "INVALID_INPUT") return error;
  const details = (error.details ?? []).map((line) =>
    line.replace(/^<stdin>:(\d+)/, (_, number) => `${path}:${input.lineOf(ids[number - 1] ?? "") ?? "?"}`),
  );
  return damaged(`${path} is not as the run has written it`, details);
}

/** Throws when a reference image was replaced by another image: that one would be sent and paid for. */
function requireOwnReferences(dir: string, items: readonly PromptItem[]): void {
  for (const { references } of items)
    for (const { sha256, source } of references) {
      const path = join(dir, referencePath(sha256));
      if (!("path" in source) || source.path === path) continue;
      throw damaged(`${source.path} is another image than the one that was sent`);
    }
}
