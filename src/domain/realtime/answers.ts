import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { SweepDeps } from "../each-due.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { KeyedRequestRecord } from "../records.ts";

/** How long the answer to a request with an idempotency key is kept. */
export const ANSWER_RETENTION_MS = 24 * 3_600_000;
/** Where the answers are kept. */
const PREFIX = "answers/";

/** The blob with the answer of a run. */
export function answerKey(realtimeId: string): string {
  return `${PREFIX}${realtimeId}`;
}

/** The body of an answer, or an error that is the answer. */
export type Outcome = { body: Buffer } | { error: ImgbatchError };

/**
 * `isReplay`: it is the answer to another request with the same key. `paidRuns`: how many runs an upstream may have been
 * paid for.
 */
export type KeyedAnswer = Outcome & { isReplay: boolean; paidRuns: number };

type KeptAnswer = NonNullable<KeyedRequestRecord["answer"]>;

/** One run of a request with an idempotency key. */
type Run = Omit<KeyedRequestRecord, "answer" | "expiresAtMs">;

/** Another process answers the same request. Nothing was made here, or it is not billed and not given out. */
export class Overtaken extends Error {
  constructor() {
    super("another process answers this request");
    this.name = "Overtaken";
  }
}

/** Throws `Overtaken` when another process has begun a run since the `earlier` one was read, or has answered. */
export async function requireNoOther(
  tx: Transaction,
  { apiKeyId, key }: Pick<Run, "apiKeyId" | "key">,
  earlier: KeyedRequestRecord | null,
): Promise<void> {
  await tx.lock("key", apiKeyId);
  const now = await tx.keyedRequests.find(apiKeyId, key);
  if (now?.realtimeId !== earlier?.realtimeId || now?.answer) throw new Overtaken();
}

/** Makes a change, unless another process has begun a run or given it up, because it took this one for dead. */
export async function changeLatest(
  tx: Transaction,
  { apiKeyId, key, realtimeId }: Run,
  change: () => Promise<void>,
): Promise<{ isOurs: boolean }> {
  await tx.lock("key", apiKeyId);
  const now = await tx.keyedRequests.find(apiKeyId, key);
  const { answer = null } = now ?? {};
  const isGivenUp = answer !== null && "error" in answer && answer.error.code === "REALTIME_OUTCOME_UNKNOWN";
  const isOurs = now?.realtimeId === realtimeId && !isGivenUp;
  if (isOurs) await change();
  return { isOurs };
}

/** Writes a run with its answer; null while it is at work. */
export function putAnswer(tx: Transaction, run: Run, answer: KeptAnswer | null, clock: Clock): Promise<void> {
  return tx.keyedRequests.put({ ...run, answer, expiresAtMs: clock.nowMs() + ANSWER_RETENTION_MS });
}

export function keptError({ code, message }: ImgbatchError): KeptAnswer {
  return { error: { code, message } };
}

/** Makes an answer durable, before a row names it. */
export async function storeAnswer(
  blobs: BlobStore,
  realtimeId: string,
  outcome: Outcome,
): Promise<KeptAnswer> {
  if ("error" in outcome) return keptError(outcome.error);
  const { sha256 } = await blobs.put(answerKey(realtimeId), outcome.body);
  return { sha256 };
}

/** Returns an earlier answer. Throws `BATCH_IMAGE_RESULT_MISSING` when its body is missing or damaged. */
export async function replay(
  blobs: BlobStore,
  { realtimeId, paidRuns }: KeyedRequestRecord,
  answer: KeptAnswer,
): Promise<KeyedAnswer> {
  if ("error" in answer) {
    return { error: new ImgbatchError(answer.error.code, answer.error.message), isReplay: true, paidRuns };
  }
  const body = await blobs.read(answerKey(realtimeId));
  if (body !== null && sha256Hex(body) === answer.sha256) return { body, isReplay: true, paidRuns };
  const message = "The answer with this Idempotency-Key is missing or damaged.";
  throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING", message);
}

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
  for (const { key, ageMs } of await blobs.list(PREFIX)) {
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
