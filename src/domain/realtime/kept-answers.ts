import { sha256Hex } from "../../kernel/ids.ts";
import type { SweepDeps } from "../each-due.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import { ANSWERS_PREFIX, answerKey } from "./keyed-run.ts";

/** How many records are looked up at a time. */
const PAGE = 200;

interface Deps {
  stores: Stores;
  blobs: BlobStore;
}

/**
 * Removes the requests with an idempotency key that expire by `dueMs`, then their answers. One failure does not stop the
 * others: the errors are returned, and the next start removes what is left.
 */
export async function sweepAnswers({ stores, blobs, ending }: SweepDeps, dueMs: number): Promise<unknown[]> {
  const failures: unknown[] = [];
  for (;;) {
    const due = ending?.aborted ? [] : await stores.read.keyedRequests.due(dueMs, PAGE);
    if (due.length === 0) return failures;
    await stores.write(async (tx) => {
      for (const record of due) await tx.keyedRequests.remove(record);
    });
    for (const { realtimeId } of due) {
      if (ending?.aborted) return failures;
      await blobs.delete(answerKey(realtimeId)).catch((error) => failures.push(error));
    }
  }
}

/** Removes answers that a process has stored but not recorded. Younger ones may be about to be recorded. */
export async function removeUnknownAnswers({ stores, blobs }: Deps, olderThanMs: number): Promise<void> {
  const known = new Set(
    (await stores.read.keyedRequests.answered()).map(({ realtimeId }) => answerKey(realtimeId)),
  );
  for (const { key, ageMs } of await blobs.list(ANSWERS_PREFIX)) {
    if (ageMs >= olderThanMs && !known.has(key)) await blobs.delete(key);
  }
}

/** Finds kept answers that are missing or damaged. Returns a line for each. */
export async function answerProblems({ stores, blobs }: Deps): Promise<string[]> {
  const problems: string[] = [];
  for (const record of await stores.read.keyedRequests.answered()) {
    const { apiKeyId, key, realtimeId, answer } = record;
    const body = await blobs.read(answerKey(realtimeId));
    if (answer === null || "error" in answer || (body !== null && sha256Hex(body) === answer.sha256))
      continue;
    // It may have been removed meanwhile.
    const now = await stores.read.keyedRequests.find(apiKeyId, key);
    if (now?.realtimeId !== realtimeId) continue;
    const state = body === null ? "missing" : "damaged";
    problems.push(`real-time request ${realtimeId}: the answer to its idempotency key is ${state}`);
  }
  return problems;
}
