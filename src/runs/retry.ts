import { type ExitName, errorEntry, ImgbatchError } from "../contract/errors.ts";
import type { Limits } from "../contract/limits.ts";
import { commitPendingInput } from "./directory/claim.ts";
import { readRunInput, requireUndamaged } from "./directory/input.ts";
import type { ResultLine } from "./directory/results.ts";
import { otherMaker, type RunService } from "./directory/run-service.ts";
import { isUpdate, writeRunState } from "./directory/run-state.ts";
import type { RunBatch, RunState } from "./directory/run-state-schema.ts";
import { lastRound } from "./reports/run-report.ts";
import { imagesIn, type Run, type StartedRun, send, unsentBatches } from "./send.ts";
import { isUnknownHere, stands } from "./standing.ts";
import { leaveElsewhere, planAgain } from "./start.ts";

export interface RetryPlan {
  /** The batches to make, with the images of each. */
  added: RunBatch[];
  /** Failed images that are left out because their prompts were refused. */
  refused: number;
  /** Failed images whose prompts are not in the directory. */
  unknown: number;
  /** Images that are not here and may still come, or, unless they are included, are lost. */
  missing: number;
  /** Images of batches that the service does not know. */
  unknownHere: number;
}

/** Plans a retry of a run: its failed images, as one or more batches for each batch in which they failed. Sends nothing. */
export async function planRetry(
  run: Pick<Run, "dir" | "state" | "service"> & { limits: Limits },
  lines: readonly ResultLine[],
  include: { refused: boolean; lost: boolean },
): Promise<RetryPlan> {
  const lost = include.lost ? (["lost"] as const) : [];
  const failed = lines.filter((line) => stands(line, "failed", "refused", ...lost));
  const wanted = failed.filter((line) => include.refused || !stands(line, "refused"));
  const input = await readRunInput(run.dir);
  if (wanted.some((line) => !input.has(line.custom_id))) requireUndamaged(input);
  const known = wanted.filter((line) => input.has(line.custom_id));
  const round = lastRound(run.state) + 1;
  const added: RunBatch[] = [];
  for (const batchId of new Set(known.map((line) => line.batch_id))) {
    const ids = known.filter((line) => line.batch_id === batchId).map((line) => line.custom_id);
    const parentId = batchId || null;
    const state = { ...run.state, batches: [...run.state.batches, ...added] };
    added.push(...(await planAgain({ ...run, state }, input, { parentId, ids, round })));
  }
  const sent = new Set(wanted);
  return {
    added,
    refused: failed.length - wanted.length,
    unknown: wanted.length - known.length,
    missing: lines.filter((line) => stands(line, "later", "lost") && !sent.has(line)).length,
    unknownHere: lines.filter(isUnknownHere).length,
  };
}

/**
 * Returns how many images a retry or an update still has to ask for that was begun with this service and is not finished;
 * null when there is none. Single images that could not be fetched do not keep it open.
 */
export function openRetry(state: RunState, service: RunService): number | null {
  const round = lastRound(state);
  const last = state.batches.filter((entry) => round > 0 && entry.round === round);
  const isOfService = last.every((entry) => otherMaker(entry, service) === null);
  const unsent = unsentRetries(state, service);
  const isOpen = round > 0 && isOfService && (state.finished_at === null || unsent.length > 0);
  return isOpen ? imagesIn(unsent) : null;
}

/** The batches of retries and updates that have no id yet, and that this service may get. */
function unsentRetries(state: RunState, service: RunService): RunBatch[] {
  return unsentBatches(state, service).filter(({ round }) => round > 0);
}

/** Begins a retry, or goes on with one where nothing is added. Its batches are on disk before the first request leaves. */
export async function sendRetry(run: Run, added: readonly RunBatch[] = []): Promise<StartedRun> {
  const { dir, state } = run;
  await commitPendingInput(dir, state);
  if (added.length > 0) {
    state.batches.push(...added);
    state.finished_at = null;
    await writeRunState(dir, state);
  }
  try {
    const started = await send(run, { added });
    await leaveElsewhere(run);
    return started;
  } catch (error) {
    if (isFinal(error)) await dropUnsent(run);
    throw error;
  }
}

const FINAL: readonly ExitName[] = ["usage", "auth", "money", "conflict", "gone"];

/** Whether the service has refused the request, so that nothing was made. */
function isFinal(error: unknown): boolean {
  return error instanceof ImgbatchError && FINAL.includes(errorEntry(error.code).exit);
}

/**
 * Removes unsent batches of retries from the run state: a refused batch is not sent again as it is. The next retry makes a
 * new plan.
 */
async function dropUnsent({ dir, state, service, clock }: Run): Promise<void> {
  const round = lastRound(state);
  const unsent = unsentRetries(state, service).filter((entry) => !isUpdate(state, entry.round));
  state.batches = state.batches.filter((entry) => !unsent.includes(entry));
  // Before a retry begins, everything earlier has been collected.
  if (lastRound(state) < round) state.finished_at = new Date(clock.nowMs()).toISOString();
  await writeRunState(dir, state);
}
