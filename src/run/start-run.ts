import { createBatch, getBatch } from "../client/batches.ts";
import type { Batch } from "../client/read-batch.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { formatDuration } from "../kernel/durations.ts";
import { chooseKeys, type KeyChoice } from "./idempotency-keys.ts";
import { intendedBatch, type Ledger, newLedger, recordBatch, writeLedger } from "./ledger.ts";
import type { Chunk, Plan } from "./plan.ts";
import { storeReferences } from "./references.ts";
import { claimDirectory, removeLeftovers } from "./run-directory.ts";
import { createRequestText, writeRunInput } from "./run-input.ts";
import type { RunVoice } from "./run-voice.ts";
import type { RunService } from "./service-identity.ts";

export interface StartOptions {
  plan: Plan;
  dir: string;
  service: RunService;
  keys: KeyChoice;
  clock: Clock;
  voice: RunVoice;
  signal?: AbortSignal | undefined;
  /** Called before anything is sent, with the chunks that have no batch yet; may throw to refuse. */
  approve?: (chunks: readonly Chunk[]) => void;
}

export interface StartedRun {
  ledger: Ledger;
  /** In the order of the run. */
  batches: Batch[];
  /** Whether any of them had been submitted before. */
  replayed: boolean;
}

/**
 * Makes the batches of a run, or finds the ones that an earlier attempt made. The ledger names each batch's key on
 * disk before its request leaves, so that no crash makes a second one.
 * Rules: RUN-2, RUN-3, RUN-8, RUN-9, RUN-12.
 */
export async function startRun(options: StartOptions): Promise<StartedRun> {
  const { plan, dir, service, signal } = options;
  const { identity, keyFingerprint } = service;
  const earlier = await claimDirectory(dir, { identity, keyFingerprint, inputSha256: plan.inputSha256 });
  const ledger = prepareLedger(options, earlier);
  options.approve?.(plan.chunks.filter((chunk) => ledger.batches[chunk.index]?.state !== "created"));
  await writeLedger(dir, ledger);
  await removeLeftovers(dir);
  await storeReferences(
    dir,
    plan.items.flatMap((item) => item.references),
  );
  await writeRunInput(dir, plan.items);

  const batches: Batch[] = [];
  let replayed = false;
  for (const chunk of plan.chunks) {
    signal?.throwIfAborted();
    const found = await submitChunk(options, ledger, chunk);
    batches.push(found.batch);
    replayed ||= found.replayed;
    if (found.replayed) options.voice.note(reuseNote(found.batch, options.clock.nowMs()));
  }
  return { ledger, batches, replayed };
}

function prepareLedger({ plan, service, keys, clock }: StartOptions, earlier: Ledger | null): Ledger {
  const { keys: chosen, isFresh } = chooseKeys(plan, keys, earlier);
  const known = earlier?.batches.map((batch) => batch.idempotency_key) ?? [];
  const isSame =
    earlier !== null && chosen.length === known.length && chosen.every((key, i) => key === known[i]);
  if (isSame) return { ...earlier, base_url: service.identity };
  return newLedger({
    baseUrl: service.identity,
    keyFingerprint: service.keyFingerprint,
    inputSha256: plan.inputSha256,
    isFresh,
    nowMs: clock.nowMs(),
    batches: chosen.map((key, index) => intendedBatch(index, key, plan.request.parentId)),
  });
}

async function submitChunk(
  { plan, dir, service, voice, signal }: StartOptions,
  ledger: Ledger,
  chunk: Chunk,
): Promise<{ batch: Batch; replayed: boolean }> {
  const entry = ledger.batches[chunk.index];
  if (entry?.idempotency_key == null) throw new ImgbatchError("INTERNAL", "A batch of the run has no key.");
  if (entry.state === "created" && entry.id !== null) {
    const { batch } = await getBatch(service.http, entry.id, { signal });
    return { batch, replayed: true };
  }
  const count = plan.chunks.length;
  voice.progress(count === 1 ? "submitting" : `submitting batch ${chunk.index + 1} of ${count}`);
  const body = await createRequestText(dir, plan.request, chunk);
  try {
    const created = await createBatch(service.http, body, entry.idempotency_key, signal);
    recordBatch(entry, created.batch);
    await writeLedger(dir, ledger);
    return created;
  } catch (error) {
    if (error instanceof ImgbatchError && error.code === "SUBMISSION_UNKNOWN") {
      entry.state = "unknown";
      await writeLedger(dir, ledger);
    }
    throw error;
  }
}

function reuseNote(batch: Batch, nowMs: number): string {
  const age =
    batch.createdAtMs === null
      ? ""
      : ` submitted ${formatDuration(Math.max(0, nowMs - batch.createdAtMs))} ago`;
  return `re-using ${batch.id}${age} (--new to generate again)`;
}
