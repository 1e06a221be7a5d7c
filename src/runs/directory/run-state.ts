import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Batch } from "../../client/answers.ts";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { programName } from "../../kernel/command-line.ts";
import { readRegularFile, writeFileDurably } from "../../kernel/files.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { microsToNumber } from "../../kernel/money.ts";
import { codePointLength } from "../../kernel/text.ts";
import type { RunService } from "./run-service.ts";
import type { MadeAgain, RunBatch, RunState } from "./run-state-schema.ts";

export const RUN_STATE_FILE = "imgbatch.json";
/** More than the state of any run has. */
const MOST_BYTES = 256 * 1024 * 1024;

/** Returns the state of a run that begins with a service. */
export function newRunState(
  { identity, keyFingerprint, upstream }: RunService,
  clock: Clock,
  facts: Pick<RunState, "input_sha256" | "is_fresh" | "request" | "batches">,
): RunState {
  return {
    schema_version: 1,
    base_url: identity,
    key_fingerprint: keyFingerprint,
    ...(upstream === null ? {} : { upstream }),
    input_sha256: facts.input_sha256,
    is_fresh: facts.is_fresh,
    created_at: new Date(clock.nowMs()).toISOString(),
    finished_at: null,
    request: facts.request,
    batches: facts.batches,
  };
}

/** Returns the entry of a batch of a service. Without facts, nothing but its place is known. */
export function newBatch(
  index: number,
  { identity, keyFingerprint }: RunService,
  facts: Partial<RunBatch>,
): RunBatch {
  return {
    index,
    base_url: identity,
    key_fingerprint: keyFingerprint,
    id: null,
    idempotency_key: null,
    state: "intent",
    status: null,
    item_count: null,
    success_count: null,
    fail_count: null,
    estimated_cost: null,
    actual_cost: null,
    parent_batch_id: null,
    created_at: null,
    round: 0,
    ...facts,
  };
}

/** Whether the request of a batch has to be sent, or sent again to find its batch. */
export function isUnsent({ state }: RunBatch): boolean {
  return state === "intent" || state === "unknown";
}

/** Whether the batches of a round make images of changed or added prompts. */
export function isUpdate({ updates = [] }: RunState, round: number): boolean {
  return updates.some((update) => update.round === round);
}

/** Returns the images that the batches of a round do not stand for any more, because their prompts were changed or removed. */
export function supersededIn(
  { updates = [] }: Pick<RunState, "updates">,
  round: number,
): ReadonlySet<string> {
  return new Set(updates.flatMap((update) => (update.round > round ? update.superseded : [])));
}

/** The number of the last retry or update; 0 when there was none. */
export function lastRound({ batches, updates = [] }: Pick<RunState, "batches" | "updates">): number {
  return [...batches, ...updates].reduce((last, { round }) => Math.max(last, round), 0);
}

/** Whether images that have not failed were not here when they were last fetched. */
export function isLacking({ batches }: Pick<RunState, "batches">): boolean {
  return batches.some(({ missing_count = 0 }) => missing_count > 0);
}

/** The batches of the submission itself, without those of its retries. */
export function submittedBatches(runState: RunState): RunBatch[] {
  return runState.batches.filter((batch) => batch.round === 0);
}

/** Whether a batch of the run stands for an image: an update may have superseded the one that it made. */
export function standsFor(runState: RunState, batchId: string, image: string): boolean {
  const entry = runState.batches.find(({ id }) => id === batchId);
  return entry === undefined || !supersededIn(runState, entry.round).has(image);
}

/** Returns what an image was last asked for instead of what its prompt says; undefined unless a person wanted another one. */
export function madeAgainOf(state: Pick<RunState, "batches" | "updates">, id: string): MadeAgain | undefined {
  const last = state.batches
    .filter(({ images }) => images?.includes(id))
    .reduce<RunBatch | null>(
      (best, entry) => (best === null || entry.round >= best.round ? entry : best),
      null,
    );
  if (last === null || supersededIn(state, last.round).has(id)) return undefined;
  return last.again?.images[id];
}

/** The batches, by id, that make images of the others again. */
export function retryIds(runState: RunState): string[] {
  return runState.batches.flatMap(({ id, round }) =>
    round > 0 && !isUpdate(runState, round) && id !== null ? [id] : [],
  );
}

/** Returns the id under which an image is sent again: its own, unless its number makes it too long for a request. */
export function retriedId(id: string): string {
  const isShort = codePointLength(id) <= FIXED_LIMITS.customIdChars;
  return isShort ? id : `retry_${sha256Hex(id).slice(0, 32)}`;
}

/** Copies the service's facts of a batch into its entry. */
export function recordBatch(entry: RunBatch, batch: Batch): void {
  const usd = (micros: number | null) => (micros === null ? null : microsToNumber(micros));
  Object.assign(entry, {
    id: batch.id,
    state: "created",
    status: batch.status,
    item_count: batch.itemCount,
    success_count: batch.successCount,
    fail_count: batch.failCount,
    estimated_cost: usd(batch.estimatedCostMicroUsd),
    actual_cost: usd(batch.actualCostMicroUsd),
    parent_batch_id: batch.parentId ?? entry.parent_batch_id,
    created_at: batch.createdAtMs === null ? entry.created_at : batch.createdAtMs / 1000,
    ...(batch.isPlay ? { play_money: true } : {}),
  } satisfies Partial<RunBatch>);
}

/** Without its run state, no file of the directory is known to be the run's. The service still has the batches. */
const withoutRunState = () =>
  `\`${programName()} list\` has the batches of this key; \`${programName()} download <id> --output <another directory>\` gets their images, and pays nothing`;

/**
 * Reads the run state of a directory; null when it has none. Throws `DIRECTORY_CONFLICT`, with `advice`, for one that
 * cannot be read as a run state.
 */
export async function readRunState(dir: string, advice = withoutRunState()): Promise<RunState | null> {
  const path = join(dir, RUN_STATE_FILE);
  let data: Buffer;
  try {
    data = readRegularFile(path, MOST_BYTES);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR" || code === "ENAMETOOLONG") return null;
    throw new ImgbatchError("SAVE_FAILED", `Could not read ${path} (${code}).`, { cause: error });
  }
  const { parseRunState } = await import("./run-state-schema.ts");
  const state = parseRunState(data);
  if (typeof state !== "string") return state;
  const message = `${path} is damaged or of another version of imgbatch (${state}).`;
  throw new ImgbatchError("DIRECTORY_CONFLICT", message, { advice });
}

const lastWrites = new WeakMap<RunState, Promise<void>>();

/**
 * Writes a run state, whole or not at all; it is on disk when this resolves. Writes of one run state wait for each other,
 * and each writes the newest facts, so that an older state never replaces a newer one.
 */
export function writeRunState(dir: string, runState: RunState): Promise<void> {
  const path = join(dir, RUN_STATE_FILE);
  const write = async () => {
    const text = `${JSON.stringify(runState, null, 2)}\n`;
    // Reading a complete run needs no writable disk.
    const before = await readFile(path, "utf8").catch(() => null);
    if (before !== text) await saving(path, () => writeFileDurably(path, text));
  };
  const written = (lastWrites.get(runState) ?? Promise.resolve()).then(write, write);
  lastWrites.set(runState, written);
  return written;
}
