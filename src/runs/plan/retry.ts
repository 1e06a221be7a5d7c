import { randomBytes } from "node:crypto";
import { MAY_BE_BILLED, MAY_BE_PAID_TWICE } from "../../contract/batch-api.ts";
import type { Limits } from "../../contract/limits.ts";
import { groupBy } from "../../kernel/json.ts";
import { type RunInput, readRunInput, requireUndamaged } from "../directory/input.ts";
import type { ResultLine } from "../directory/results.ts";
import { otherMaker, type RunService } from "../directory/run-service.ts";
import { lastRound, madeAgainOf, newBatch, retriedId, writeRunState } from "../directory/run-state.ts";
import type { MadeAgain, RunBatch, RunState } from "../directory/run-state-schema.ts";
import { itemsOf, settingsOf } from "../request.ts";
import { type Run, unsentBatches } from "../send.ts";
import { isUnknownHere, stands } from "../standing.ts";
import type { Asked } from "./choose-model.ts";
import { planRun } from "./plan.ts";

interface RetryPlan {
  /** The batches to make, with the images of each. */
  added: RunBatch[];
  /** Failed images that are left out because their prompts were refused. */
  refused: number;
  /** Failed images whose prompts are not in the directory. */
  unknown: number;
  /** Images that may be paid, because an answer was lost, unless they are included. */
  undecided: number;
  /** Images that are not here and may still come, or, unless they are included, are lost. */
  missing: number;
  /** Images of batches that the service does not know. */
  unknownHere: number;
}

type PlannedRun = Pick<Run, "dir" | "state" | "service" | "sharesReferences" | "instead"> & {
  limits: Limits;
  /** Returns the model of `instead` for an image. Not called without it. */
  modelOf?: (asked: Asked) => string;
};

/**
 * Plans the batches that make these images of the input, after the other batches of the run. Their idempotency keys come
 * from the content, so that the same plan never makes a second batch. Images of which a person wanted another picture are
 * asked for as they were last, or as `wanted` says: then under new keys, since the same request is to make another picture.
 */
export async function planAgain(
  { dir, state, service, limits, sharesReferences, instead, modelOf = () => "" }: PlannedRun,
  input: RunInput,
  {
    parentId,
    ids,
    round,
    wanted,
  }: { parentId: string | null; ids: readonly string[]; round: number; wanted?: RunBatch["again"] },
): Promise<RunBatch[]> {
  if (ids.length === 0) return [];
  const settings = settingsOf(state);
  const known = ids.flatMap((id): [string, MadeAgain][] => {
    const before = wanted?.images[id] ?? madeAgainOf(state, id);
    return before === undefined ? [] : [[id, before]];
  });
  const again = Object.fromEntries(known);
  const flags = wanted?.flags ?? {};
  const asked = await itemsOf(dir, input, ids, again);
  const items = instead === undefined ? asked : asked.map((item) => ({ ...item, model: modelOf(item) }));
  const other = instead === undefined ? {} : { provider: instead };
  const own = new Map(ids.map((id) => [retriedId(id), id]));
  const { chunks } = planRun({ ...settings, ...other, parentId, items }, limits, sharesReferences);
  return chunks.map((chunk, i) => {
    const images = chunk.items.map(({ customId }) => own.get(customId) ?? customId);
    const others = Object.fromEntries(known.filter(([id]) => images.includes(id)));
    return newBatch(state.batches.length + i, service, {
      model: chunk.model,
      ...other,
      idempotency_key:
        wanted === undefined ? chunk.contentKey : `ib1-again-${randomBytes(16).toString("hex")}`,
      parent_batch_id: parentId,
      asked_count: chunk.imageCount,
      round,
      images,
      ...(known.length > 0 && { again: { flags, images: others } }),
    });
  });
}

/** Whether the upstream that made no image may bill it all the same. */
function mayBeBilled({ notes = [] }: Pick<ResultLine, "notes">): boolean {
  return notes.some((note) => note.startsWith(MAY_BE_BILLED) || note.startsWith(MAY_BE_PAID_TWICE));
}

/** Keeps in the entries of batches that make images again what earlier requests for these may cost. */
function noteBilled(added: readonly RunBatch[], lines: readonly ResultLine[]): void {
  const before = new Map(lines.map((line) => [line.custom_id, line]));
  for (const entry of added) {
    const billed = (entry.images ?? []).flatMap((id): [string, number][] => {
      const line = before.get(id);
      const usd = line?.may_be_billed;
      return line !== undefined && (usd !== undefined || mayBeBilled(line)) ? [[id, usd ?? 0]] : [];
    });
    if (billed.length > 0) entry.may_be_billed = Object.fromEntries(billed);
  }
}

/**
 * Whether the same command makes a failed image again: nobody has paid for it, its prompt was not refused, and nobody has
 * cancelled it.
 */
export function isMadeAgain(line: ResultLine): boolean {
  return stands(line, "failed") && !mayBeBilled(line) && line.error?.code !== "CANCELLED";
}

/** Plans a retry of a run: its failed images, as one or more batches for each batch in which they failed. Sends nothing. */
export async function planRetry(
  run: PlannedRun,
  lines: readonly ResultLine[],
  include: { refused: boolean; lost: boolean },
): Promise<RetryPlan> {
  const lost = include.lost ? (["lost", "unknown"] as const) : [];
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
  noteBilled(added, known);
  const sent = new Set(wanted);
  return {
    added,
    refused: failed.length - wanted.length,
    unknown: wanted.length - known.length,
    missing: lines.filter((line) => stands(line, "later", "lost") && !sent.has(line)).length,
    undecided: lines.filter((line) => stands(line, "unknown") && !sent.has(line)).length,
    unknownHere: lines.filter(isUnknownHere).length,
  };
}

/**
 * Plans other pictures for images that a person does not want as they are, however they stand: as one or more batches for each
 * batch that they are of now. Sends nothing.
 */
export async function planRemake(
  run: PlannedRun,
  lines: readonly ResultLine[],
  wanted: NonNullable<RunBatch["again"]>,
): Promise<RunBatch[]> {
  const input = await readRunInput(run.dir);
  requireUndamaged(input);
  const round = lastRound(run.state) + 1;
  const makers = new Map(lines.map((line) => [line.custom_id, line.batch_id || null]));
  const groups = groupBy(Object.keys(wanted.images), (id) => makers.get(id) ?? null);
  const added: RunBatch[] = [];
  for (const [parentId, ids] of groups) {
    const state = { ...run.state, batches: [...run.state.batches, ...added] };
    added.push(...(await planAgain({ ...run, state }, input, { parentId, ids, round, wanted })));
  }
  noteBilled(added, lines);
  return added;
}

/** Returns the flags of the command that began the last round, if that makes pictures again that a person does not want. */
export function remakeFlags(state: RunState): Readonly<Record<string, string>> | null {
  const round = lastRound(state);
  const last = state.batches.find((entry) => entry.round === round && entry.again !== undefined);
  const flags = last?.again?.flags ?? {};
  return Object.keys(flags).length === 0 ? null : flags;
}

/**
 * Whether nobody who typed the command of the last round at `beganMs` (ms since 1970) knows yet what it made: the command was
 * killed before it could say so, or said so while an equal command waited for its turn.
 */
export function isUntold(state: RunState, beganMs: number): boolean {
  const round = lastRound(state);
  return state.batches.some(
    ({ round: own, again }) =>
      own === round &&
      again !== undefined &&
      (again.told_at === undefined || Date.parse(again.told_at) >= beganMs),
  );
}

/** Records when the command that began the last round has said how it ended. */
export async function recordTold(dir: string, state: RunState, nowMs: number): Promise<void> {
  const round = lastRound(state);
  for (const { round: own, again } of state.batches)
    if (own === round && again !== undefined) again.told_at = new Date(nowMs).toISOString();
  await writeRunState(dir, state);
}

/** Returns the images of the last round whose earlier pictures stay, because no other one could be made. */
export function notRemade(state: RunState, lines: readonly ResultLine[]): ResultLine[] {
  const round = lastRound(state);
  const last = state.batches.filter((entry) => entry.round === round && entry.again !== undefined);
  const ids = new Set(last.flatMap(({ images = [] }) => images));
  const batches = new Set(last.map(({ id }) => id));
  return lines.filter(({ custom_id: id, batch_id: batch = "" }) => ids.has(id) && !batches.has(batch));
}

/**
 * Returns the batches that a retry or an update still has to ask for that was begun with this service and is not finished;
 * null when there is none. Single images that could not be fetched do not keep it open.
 */
export function openRetry(state: RunState, service: RunService): RunBatch[] | null {
  const round = lastRound(state);
  const last = state.batches.filter((entry) => round > 0 && entry.round === round);
  const isOfService = last.every((entry) => otherMaker(entry, service) === null);
  const unsent = unsentBatches(state, service).filter((entry) => entry.round > 0);
  const isOpen = round > 0 && isOfService && (state.finished_at === null || unsent.length > 0);
  return isOpen ? unsent : null;
}
