import { FIXED_LIMITS } from "../contract/limits.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { deleteOutputs, purgeOutputs } from "./batches/delete.ts";
import { inputsPrefix } from "./batches/write-items.ts";
import type { BlobStore } from "./ports/blob-store.ts";
import type { Stores, Transaction } from "./ports/stores.ts";

const HOUR_MS = 3_600_000;

/** What is kept for a time and named by a row: where its bytes are, in the blob store, and how long they are kept. */
export const KEPT = {
  /** Uploaded files. */
  files: { prefix: "files/", forMs: FIXED_LIMITS.fileHours * HOUR_MS },
  /** Images that can be fetched by a link. */
  links: { prefix: "links/", forMs: FIXED_LIMITS.imageLinkHours * HOUR_MS },
  /** Images of conversations. */
  interactions: { prefix: "interactions/", forMs: FIXED_LIMITS.fileHours * HOUR_MS },
  /** Answers to requests with an idempotency key. */
  answers: { prefix: "answers/", forMs: 24 * HOUR_MS },
} as const;

/** Where the images of an interaction are, in the blob store. */
export const picturesPrefix = (interactionId: string) => `${KEPT.interactions.prefix}${interactionId}/`;

/** When `ending` aborts, the rest is left to the next sweep. Default: never. */
interface SweepDeps {
  stores: Stores;
  blobs: BlobStore;
  ending?: AbortSignal;
}

/** How many rows are looked up at a time. */
const PAGE = 200;

/** Yields the rows of all pages, each once. Ends early when `ending` aborts. */
async function* eachDue<T extends { seq: number }>(
  page: (position: { afterSeq: number; limit: number }) => Promise<readonly T[]>,
  ending?: AbortSignal,
): AsyncGenerator<T> {
  for (let afterSeq = 0; ; ) {
    const found = await page({ afterSeq, limit: PAGE });
    for (const row of found) {
      if (ending?.aborted) return;
      yield row;
      afterSeq = row.seq;
    }
    if (found.length < PAGE) return;
  }
}

/** Idempotency keys are kept this long after the record of their batch was deleted: a year. */
const KEY_RETENTION_MS = 365 * 24 * HOUR_MS;

interface SweepReport {
  /** Batches that are `output_deleted` because of this sweep. */
  outputsDeleted: string[];
  /** Deletions that failed; the next sweep tries them again. `batchId`: null for what belongs to no batch. */
  failures: { batchId: string | null; error: unknown }[];
}

/**
 * Deletes expired outputs, the files of batches that are `output_deleted`, the reference images of batches that ended
 * `inputRetentionMs` ago (0 keeps them), old idempotency keys, and what expires with its row. Records of batches stay.
 * Everything that is due at `dueMs` is deleted (`expiredMs`: at other times), and the deletion is dated `nowMs`. One failure
 * does not stop the others. When `ending` aborts, the rest is left to the next sweep.
 */
export async function sweep(
  { stores, blobs, ending }: SweepDeps,
  { nowMs, dueMs, inputRetentionMs, expiredMs = {} }: SweepTimes,
): Promise<SweepReport> {
  const { batches, files, linkedImages, interactions, keyedRequests } = stores.read;
  const report: SweepReport = { outputsDeleted: [], failures: [] };
  const attempt = (batchId: string | null, work: () => Promise<void>) =>
    work().catch((error) => void report.failures.push({ batchId, error }));
  for await (const { id } of eachDue((page) => batches.outputsDue(dueMs, page), ending))
    await attempt(id, async () => {
      if (await deleteOutputs(stores, id, nowMs)) report.outputsDeleted.push(id);
      await purgeOutputs({ stores, blobs }, id, nowMs);
    });
  const inputsDue = eachDue((page) => batches.inputsDue(dueMs - inputRetentionMs, page), ending);
  for await (const { id } of inputRetentionMs === 0 ? [] : inputsDue)
    await attempt(id, async () => {
      await blobs.deleteAll(inputsPrefix(id));
      await stores.write((tx) => tx.batches.update(id, { inputsPurgedAtMs: nowMs }));
    });
  await stores.write((tx) => tx.idempotency.removeOfRecordsDeletedBefore(dueMs - KEY_RETENTION_MS));
  const remove = (blobKey: string, forget: (tx: Transaction) => Promise<void>) =>
    attempt(null, async () => {
      await blobs.delete(blobKey);
      await stores.write(forget);
    });
  for await (const { blobKey } of eachDue((page) => files.due(dueMs, page), ending))
    await remove(blobKey, (tx) => tx.files.remove(blobKey));
  for await (const { id } of eachDue((page) => linkedImages.due(expiredMs.links ?? dueMs, page), ending))
    await remove(KEPT.links.prefix + id, (tx) => tx.linkedImages.remove(id));
  for await (const { id } of eachDue((page) => interactions.due(dueMs, page), ending))
    await attempt(null, async () => {
      await blobs.deleteAll(picturesPrefix(id));
      await stores.write((tx) => tx.interactions.remove(id));
    });
  for (;;) {
    const due = ending?.aborted ? [] : await keyedRequests.due(expiredMs.answers ?? dueMs, PAGE);
    if (due.length === 0) return report;
    // The rows first: a repeat must not find one whose answer is gone.
    await stores.write(async (tx) => {
      for (const record of due) await tx.keyedRequests.remove(record);
    });
    for (const { realtimeId } of due) {
      if (ending?.aborted) return report;
      await attempt(null, () => blobs.delete(KEPT.answers.prefix + realtimeId));
    }
  }
}

/**
 * Deletes the images and the reference images of the batches that ended before a time; their records and their payment stay.
 * With `isDryRun` it only counts. One failure does not stop the others.
 */
export async function prune(
  { stores, blobs }: SweepDeps,
  { nowMs, endedBeforeMs, isDryRun }: { nowMs: number; endedBeforeMs: number; isDryRun: boolean },
): Promise<{
  batches: number;
  images: number;
  bytes: number;
  failures: { batchId: string; error: unknown }[];
}> {
  const report = { batches: 0, images: 0, bytes: 0, failures: [] as { batchId: string; error: unknown }[] };
  for await (const { id } of eachDue((page) => stores.read.batches.keptSince(endedBeforeMs, page))) {
    const outputs = await stores.read.outputs.ofBatch(id);
    try {
      if (!isDryRun) {
        await deleteOutputs(stores, id, nowMs);
        await purgeOutputs({ stores, blobs }, id, nowMs);
        await blobs.deleteAll(inputsPrefix(id));
        await stores.write((tx) => tx.batches.update(id, { inputsPurgedAtMs: nowMs }));
      }
    } catch (error) {
      report.failures.push({ batchId: id, error });
      continue;
    }
    report.batches++;
    report.images += outputs.length;
    report.bytes += outputs.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  }
  return report;
}

interface SweepTimes {
  nowMs: number;
  dueMs: number;
  inputRetentionMs: number;
  expiredMs?: { links?: number; answers?: number };
}

/** Removes what a process has stored but not recorded. Younger things may be about to be recorded. Returns how many there were. */
export async function removeUnrecorded({ stores, blobs }: SweepDeps, olderThanMs: number): Promise<number> {
  const { files, linkedImages, interactions, keyedRequests } = stores.read;
  const answers = (await keyedRequests.answered()).map(({ realtimeId }) => KEPT.answers.prefix + realtimeId);
  const known = new Set([...(await files.blobKeys()), ...answers]);
  let removed = 0;
  for (const kind of Object.values(KEPT)) {
    for (const { key, ageMs } of await blobs.list(kind.prefix)) {
      if (ageMs < olderThanMs || known.has(key)) continue;
      const [name = ""] = key.slice(kind.prefix.length).split("/");
      if (kind === KEPT.links && (await linkedImages.find(name)) !== null) continue;
      if (kind === KEPT.interactions && (await interactions.find(name)) !== null) continue;
      await blobs.delete(key);
      removed++;
    }
  }
  return removed;
}

/** Finds what is kept for a time, and is missing or has other bytes than recorded. Returns a line for each. */
export async function expiringProblems({ stores, blobs }: SweepDeps): Promise<string[]> {
  const { files, linkedImages, interactions, keyedRequests } = stores.read;
  const problems: string[] = [];
  const all = Number.MAX_SAFE_INTEGER;
  const stateOf = (found: unknown) => (found === null ? "missing" : "damaged");
  // What is gone may have been removed meanwhile: bytes of files and links go before their row.
  for await (const file of eachDue((page) => files.due(all, page))) {
    const { id, apiKeyId, blobKey, expiresAtMs } = file;
    const size = await blobs.sizeOf(blobKey);
    if (size === file.sizeBytes || expiresAtMs === 0) continue;
    const now = await files.find(apiKeyId, id);
    if (now?.blobKey === blobKey && now.expiresAtMs === expiresAtMs)
      problems.push(`file ${id} of key ${apiKeyId}: ${blobKey} is ${stateOf(size)}`);
  }
  for await (const { id, sizeBytes } of eachDue((page) => linkedImages.due(all, page))) {
    const blobKey = KEPT.links.prefix + id;
    const size = await blobs.sizeOf(blobKey);
    if (size !== sizeBytes && (await linkedImages.find(id)) !== null)
      problems.push(`an image with a link: ${blobKey} is ${stateOf(size)}`);
  }
  for await (const { id, pictures } of eachDue((page) => interactions.due(all, page)))
    for (const { blobKey, sizeBytes } of pictures) {
      const size = await blobs.sizeOf(blobKey);
      if (size !== sizeBytes && (await interactions.find(id)) !== null)
        problems.push(`an image of ${id}: ${blobKey} is ${stateOf(size)}`);
    }
  for (const { apiKeyId, key, realtimeId, answer } of await keyedRequests.answered()) {
    const body = await blobs.read(KEPT.answers.prefix + realtimeId);
    if (answer === null || "error" in answer || (body && sha256Hex(body) === answer.sha256)) continue;
    if ((await keyedRequests.find(apiKeyId, key))?.realtimeId !== realtimeId) continue;
    problems.push(`real-time request ${realtimeId}: the answer to its idempotency key is ${stateOf(body)}`);
  }
  return problems;
}
