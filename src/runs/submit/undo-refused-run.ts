import { rm } from "node:fs/promises";
import { join } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { formatProblem } from "../../prompts/problems.ts";
import { INPUT_FILE, REFERENCES_FOLDER } from "../directory/names.ts";
import { RUN_STATE_FILE } from "../directory/run-state.ts";
import type { RunState } from "../directory/run-state-schema.ts";
import type { Chunk, PlannedItem } from "../plan/plan.ts";

/** The 4xx statuses after which the request, or an earlier one with its key, may still have made something. */
const OPEN_STATUSES = [408, 409, 425, 429];

/** Whether the service has refused a request, so that it made nothing. */
export function isOutright(error: unknown): boolean {
  if (!(error instanceof ImgbatchError) || error.code === "SUBMISSION_UNKNOWN") return false;
  const { httpStatus } = error;
  return httpStatus >= 400 && httpStatus < 500 && !OPEN_STATUSES.includes(httpStatus);
}

/**
 * Removes the files of a run that this call began, when the service refused its first batch outright. The corrected input
 * can then use the directory. Nothing is removed when a batch was made, or may have been. A file that cannot be removed
 * stays, since the refusal is the error to report.
 */
export async function undoRefusedRun(dir: string, runState: RunState, error: unknown): Promise<void> {
  const isUnsent = runState.batches.every(({ state, id }) => state === "intent" && id === null);
  if (!isUnsent || !isOutright(error)) return;
  try {
    // The run state goes last: after a crash the other files must still be known as the run's.
    await rm(join(dir, REFERENCES_FOLDER), { recursive: true, force: true });
    await rm(join(dir, INPUT_FILE), { force: true });
    await rm(join(dir, RUN_STATE_FILE), { force: true });
  } catch {
    // A later run in this directory then reports the conflict.
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

/** Returns the file of the reference image that a field names. */
function pathOf({ references }: PlannedItem, field: string | null): string {
  const [, index] = /^reference_images\[(\d+)\]/.exec(field ?? "") ?? [];
  const source = index === undefined ? undefined : references[Number(index)]?.source;
  return source !== undefined && "path" in source ? `${source.path}: ` : "";
}
