import { rm } from "node:fs/promises";
import { join } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { REFERENCES_FOLDER } from "../directory/claim.ts";
import { INPUT_FILE } from "../directory/input-file.ts";
import { RUN_STATE_FILE, type RunState } from "../directory/run-state.ts";
import type { Chunk, PlannedItem } from "../plan/plan.ts";
import { formatProblem } from "../prompts/prompt-item.ts";

/** Answers of 400 to 499 that leave open whether the request, or an earlier one with its key, made something. */
const OPEN_STATUSES = [408, 409, 425, 429];

/** Whether the service has answered that it made nothing of a request. */
function isOutright(error: unknown): boolean {
  if (!(error instanceof ImgbatchError) || error.code === "SUBMISSION_UNKNOWN") return false;
  const { httpStatus } = error;
  return httpStatus >= 400 && httpStatus < 500 && !OPEN_STATUSES.includes(httpStatus);
}

/**
 * Takes back a run that was begun by this very call when the service refused its first batch outright: what the run has
 * written is removed, so that the mended input can use the directory. Nothing is touched when a batch was made, or may
 * have been. What cannot be removed stays; the refusal is the error to tell.
 */
export async function undoRefusedRun(dir: string, runState: RunState, error: unknown): Promise<void> {
  const isUnsent = runState.batches.every(({ state, id }) => state === "intent" && id === null);
  if (!isUnsent || !isOutright(error)) return;
  try {
    // The run state last: what is left after a crash is still known to be of a run.
    await rm(join(dir, REFERENCES_FOLDER), { recursive: true, force: true });
    await rm(join(dir, INPUT_FILE), { force: true });
    await rm(join(dir, RUN_STATE_FILE), { force: true });
  } catch {
    // A mended input is refused here then, which says so.
  }
}

const ITEM_FIELD = /\bitems\[(\d+)\](?:\.((?:\w|\[\d+\]|\.(?=\w))+))?/;

/**
 * The same error, with the file and line of the input that it is about where the service names an item of its request.
 */
export function locateInInput(error: unknown, { items }: Chunk): unknown {
  if (!(error instanceof ImgbatchError)) return error;
  const { code, message, param, httpStatus, requestId, retryAfterMs, details, advice } = error;
  const [named = "", index, field = null] = ITEM_FIELD.exec(param ?? "") ?? ITEM_FIELD.exec(message) ?? [];
  const item = index === undefined ? undefined : items[Number(index)];
  if (item === undefined) return error;
  const what = message.startsWith(`${named}: `) ? message.slice(named.length + 2) : message;
  const line = formatProblem({ ...item.fileLine, field, message: `${pathOf(item, field)}${what}` });
  return new ImgbatchError(code, message, {
    cause: error,
    param,
    httpStatus,
    requestId,
    retryAfterMs,
    details: [...(details ?? []), line],
    advice,
  });
}

/** The file of the reference image that a field is about. */
function pathOf({ references }: PlannedItem, field: string | null): string {
  const [, index] = /^reference_images\[(\d+)\]/.exec(field ?? "") ?? [];
  const source = index === undefined ? undefined : references[Number(index)]?.source;
  return source !== undefined && "path" in source ? `${source.path}: ` : "";
}
