import { getBatch } from "../client/batches.ts";
import type { Batch } from "../client/read-batch.ts";
import { errorEntry, ImgbatchError } from "../contract/errors.ts";
import type { ExitName } from "../contract/exit-codes.ts";
import type { Limits } from "../contract/limits.ts";
import type { Clock } from "../kernel/clock.ts";
import { counted } from "../kernel/plural.ts";
import { intendedBatch, type Ledger, lastRound, writeLedger } from "./ledger.ts";
import { partsOf, type RetryPart } from "./plan-retry.ts";
import type { RunVoice } from "./run-voice.ts";
import type { RunService } from "./service-identity.ts";
import type { StartedRun } from "./start-run.ts";
import type { Submissions } from "./submissions.ts";
import { submitBatch } from "./submit-batch.ts";

export interface RetryOptions {
  dir: string;
  ledger: Ledger;
  service: RunService;
  limits: Limits;
  clock: Clock;
  voice: RunVoice;
  signal?: AbortSignal | undefined;
  /** Is told what becomes of the batches. */
  submissions?: Submissions | undefined;
}

/** Whether a retry was begun that has not come to its end. Single images that could not be had do not keep it open. */
export function isRetryOpen(ledger: Ledger): boolean {
  if (lastRound(ledger) === 0) return false;
  return ledger.finished_at === null || unsentOf(ledger).length > 0;
}

/** The batches of a retry that have no id yet. */
function unsentOf(ledger: Ledger): Ledger["batches"] {
  return ledger.batches.filter(({ round, state }) => round > 0 && state !== "created");
}

/** How many images an open retry has still to send. */
export function unsentImages(ledger: Ledger): number {
  return unsentOf(ledger).reduce((sum, entry) => sum + (entry.retried?.length ?? 0), 0);
}

/**
 * Begins a retry: its batches, with their keys, are in the ledger on disk before the first request leaves.
 * Rules: RETRY-1, RETRY-3.
 */
export async function startRetry(options: RetryOptions, parts: readonly RetryPart[]): Promise<StartedRun> {
  const { dir, ledger } = options;
  const round = lastRound(ledger) + 1;
  for (const { chunk, request, ids } of parts) {
    const { contentKey: idempotencyKey, imageCount } = chunk;
    const { parentId } = request;
    const entry = intendedBatch(ledger.batches.length, { idempotencyKey, parentId, imageCount });
    ledger.batches.push({ ...entry, round, retried: ids });
  }
  ledger.finished_at = null;
  await writeLedger(dir, ledger);
  return sendOrDrop(options);
}

/** Sends what an open retry has not sent yet, and answers every batch of the run. */
export async function resumeRetry(options: RetryOptions): Promise<StartedRun> {
  for (const entry of unsentOf(options.ledger)) options.submissions?.open.add(entry);
  return sendOrDrop(options);
}

async function sendOrDrop(options: RetryOptions): Promise<StartedRun> {
  try {
    return await sendAll(options);
  } catch (error) {
    if (isFinal(error)) await dropUnsent(options);
    throw error;
  }
}

async function sendAll(options: RetryOptions): Promise<StartedRun> {
  const { dir, ledger, service, limits, signal, submissions } = options;
  if (submissions !== undefined) submissions.total = ledger.batches.length;
  const batches: Batch[] = [];
  let replayed = false;
  for (const entry of ledger.batches) {
    signal?.throwIfAborted();
    if (entry.state === "created" && entry.id !== null) {
      const { batch } = await getBatch(service.http, entry.id, { signal });
      submissions?.known.set(batch.id, batch);
      batches.push(batch);
      continue;
    }
    const [part] = await partsOf({ dir, ledger, limits }, entry.parent_batch_id, entry.retried ?? []);
    if (part === undefined) throw new ImgbatchError("INTERNAL", "A retry has nothing to send.");
    options.voice.progress(`submitting ${counted(part.ids.length, "image")} again`);
    const found = await submitBatch({ ...options, ...part, entry });
    batches.push(found.batch);
    replayed ||= found.replayed;
  }
  return { ledger, batches, replayed };
}

const FINAL: readonly ExitName[] = ["usage", "auth", "money", "conflict", "gone"];

/** Whether the service has refused the request, so that nothing was made. */
function isFinal(error: unknown): boolean {
  return error instanceof ImgbatchError && FINAL.includes(errorEntry(error.code).exit);
}

/** A batch that was refused is not sent again as it is: the next retry plans anew. */
async function dropUnsent({ dir, ledger, clock }: RetryOptions): Promise<void> {
  const round = lastRound(ledger);
  const unsent = unsentOf(ledger);
  ledger.batches = ledger.batches.filter((entry) => !unsent.includes(entry));
  // Before a retry begins, everything earlier has been collected.
  if (lastRound(ledger) < round) ledger.finished_at = new Date(clock.nowMs()).toISOString();
  await writeLedger(dir, ledger);
}
