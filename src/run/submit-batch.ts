import { createBatch, getBatch } from "../client/batches.ts";
import type { Batch } from "../client/read-batch.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { formatDuration } from "../kernel/durations.ts";
import { createRequest } from "./create-request.ts";
import { type Ledger, type LedgerBatch, recordBatch, writeLedger } from "./ledger.ts";
import type { Chunk, RunRequest } from "./plan.ts";
import type { RunVoice } from "./run-voice.ts";
import type { RunService } from "./service-identity.ts";
import { leavesOpen, type Submissions } from "./submissions.ts";

export interface SubmitBatchOptions {
  dir: string;
  service: RunService;
  request: RunRequest;
  chunk: Chunk;
  ledger: Ledger;
  /** The batch's own place in the ledger, with its key; on disk already. */
  entry: LedgerBatch;
  clock: Clock;
  voice: RunVoice;
  signal?: AbortSignal | undefined;
  submissions?: Submissions | undefined;
}

/**
 * Makes one batch of a run, or finds the one that an earlier attempt made, and notes it in the ledger.
 * Rules: RUN-3, RUN-8.
 */
export async function submitBatch(options: SubmitBatchOptions): Promise<{ batch: Batch; replayed: boolean }> {
  const found = await createOrFind(options);
  const { batch, replayed } = found;
  const { voice, clock, submissions } = options;
  submissions?.known.set(batch.id, batch);
  voice.event?.({
    event: replayed ? "batch_replayed" : "batch_created",
    batch_id: batch.id,
    item_count: batch.itemCount,
  });
  if (replayed) {
    const hint = options.entry.round === 0 ? " (--new to generate again)" : "";
    voice.note(`${reuseNote(batch, clock.nowMs())}${hint}`);
  }
  return found;
}

async function createOrFind(options: SubmitBatchOptions): Promise<{ batch: Batch; replayed: boolean }> {
  const { dir, service, entry, ledger, request, chunk, signal, submissions } = options;
  if (entry.idempotency_key === null) throw new ImgbatchError("INTERNAL", "A batch of the run has no key.");
  if (entry.state === "created" && entry.id !== null) {
    const { batch } = await getBatch(service.http, entry.id, { signal });
    return { batch, replayed: true };
  }
  const body = createRequest(dir, request, chunk);
  signal?.throwIfAborted();
  const wasOpen = submissions?.open.has(entry) ?? false;
  submissions?.open.add(entry);
  try {
    const signals = { signal, answerSignal: submissions?.answerSignal };
    const made = await createBatch(service.http, body, entry.idempotency_key, signals);
    submissions?.open.delete(entry);
    submissions?.known.set(made.batch.id, made.batch);
    const created = { ...made, replayed: made.replayed || made.batch.id === entry.id };
    requireOwnId(ledger, entry, created.batch);
    recordBatch(entry, created.batch);
    await writeLedger(dir, ledger);
    return created;
  } catch (error) {
    if (!leavesOpen(error, signal)) {
      if (!wasOpen) submissions?.open.delete(entry);
    } else if (entry.state !== "created") {
      entry.state = "unknown";
      // Without it the intent stands, which leads to the same: the first error is the one to tell.
      await writeLedger(dir, ledger).catch(() => {});
    }
    throw error;
  }
}

/** Two requests that end up as one batch would be one set of images for two prices, or for two prompts. */
function requireOwnId(ledger: Ledger, entry: LedgerBatch, { id }: Batch): void {
  const other = ledger.batches.find((each) => each !== entry && each.id === id);
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
