import type { Batch } from "../../client/batch.ts";
import { createBatch } from "../../client/batches.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { recordBatch, writeRunState } from "../directory/run-state.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import type { RunService } from "../directory/service-identity.ts";
import type { Chunk, RunRequest } from "../plan/plan.ts";
import type { RunReporter } from "../reporter.ts";
import { findBatch } from "../run-batches.ts";
import { createRequest } from "./create-request.ts";
import { leavesOpen, type Submissions } from "./pending-submissions.ts";

interface SubmitBatchOptions {
  dir: string;
  service: RunService;
  request: RunRequest;
  chunk: Chunk;
  state: RunState;
  /** The batch's entry in the run state, with its key; on disk already. */
  entry: RunBatch;
  clock: Clock;
  reporter: RunReporter;
  signal?: AbortSignal | undefined;
  submissions?: Submissions | undefined;
  /** The most that one image may hold, in micro-dollars, with the consent to pay it. Default: null, none. */
  imageConsentMicroUsd?: number | null;
}

/** Makes one batch of a run, or finds the one that an earlier attempt made, and writes it into the run state. */
export async function submitBatch(options: SubmitBatchOptions): Promise<{ batch: Batch; replayed: boolean }> {
  const found = await createOrFind(options);
  const { batch, replayed } = found;
  const { reporter, clock, submissions } = options;
  submissions?.known.set(batch.id, batch);
  if (replayed) reportReplay(reporter, batch, { nowMs: clock.nowMs(), isRetry: options.entry.round > 0 });
  else reporter.event?.({ event: "batch_created", batch_id: batch.id, item_count: batch.itemCount });
  return found;
}

/** Reports a batch that was submitted before. */
export function reportReplay(
  reporter: RunReporter,
  batch: Batch,
  { nowMs, isRetry }: { nowMs: number; isRetry: boolean },
): void {
  reporter.event?.({ event: "batch_replayed", batch_id: batch.id, item_count: batch.itemCount });
  if (batch.isUnknown) return;
  reporter.note(`${reuseNote(batch, nowMs)}${isRetry ? "" : " (--new to generate again)"}`);
}

async function createOrFind(options: SubmitBatchOptions): Promise<{ batch: Batch; replayed: boolean }> {
  const { dir, service, entry, state: runState, request, chunk, signal, submissions } = options;
  if (entry.idempotency_key === null) throw new ImgbatchError("INTERNAL", "A batch of the run has no key.");
  if (entry.state === "created" && entry.id !== null) {
    return { batch: await findBatch(service.http, entry, entry.id, signal), replayed: true };
  }
  const body = createRequest(dir, request, chunk);
  signal?.throwIfAborted();
  const wasOpen = submissions?.open.has(entry) ?? false;
  submissions?.open.add(entry);
  try {
    const { imageConsentMicroUsd = null } = options;
    const made = await createBatch(service.http, body, entry.idempotency_key, {
      signal,
      answerSignal: submissions?.answerSignal,
      consentMicroUsd: imageConsentMicroUsd === null ? null : imageConsentMicroUsd * chunk.imageCount,
    });
    submissions?.open.delete(entry);
    submissions?.known.set(made.batch.id, made.batch);
    const created = { ...made, replayed: made.replayed || made.batch.id === entry.id };
    requireOwnId(runState, entry, created.batch);
    recordBatch(entry, created.batch);
    await writeRunState(dir, runState);
    return created;
  } catch (error) {
    if (!leavesOpen(error, signal)) {
      if (!wasOpen) submissions?.open.delete(entry);
    } else if (entry.state !== "created") {
      entry.state = "unknown";
      // If this fails, the `intent` on disk has the same effect. The first error is the one to report.
      await writeRunState(dir, runState).catch(() => {});
    }
    throw error;
  }
}

/** Throws when two requests got the same batch: one set of images would stand for two sets of prompts. */
function requireOwnId(runState: RunState, entry: RunBatch, { id }: Batch): void {
  const other = runState.batches.find((each) => each !== entry && each.id === id);
  if (other === undefined) return;
  const message = `The service answered ${id} to two different requests.`;
  throw new ImgbatchError("BAD_RESPONSE", message);
}

function reuseNote(batch: Batch, nowMs: number): string {
  const age =
    batch.createdAtMs === null
      ? ""
      : ` submitted ${formatDuration(Math.max(0, nowMs - batch.createdAtMs))} ago`;
  return `re-using ${batch.id}${age}`;
}
