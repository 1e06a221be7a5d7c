import type { ItemError } from "../../contract/statuses.ts";
import { tracer } from "../../kernel/tracing.ts";
import { type Call, recordCalls } from "../health/calls.ts";
import { NOT_AGAIN } from "../images/ask-in-turn.ts";
import { lendImage, type MadeImage } from "../images/output-images.ts";
import { type BlobStore, StorageUnavailable } from "../ports/blob-store.ts";
import type {
  GeneratedImages,
  ProviderError,
  UpstreamUsage,
  VerbatimAnswer,
} from "../ports/image-provider.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { BatchRecord, LeasedItem, OutputRecord } from "../records.ts";

/** How many groups are under way at most, and the most entries of one. */
const [GROUPS_AT_ONCE, MOST_IN_A_GROUP] = [4, 50];

interface Waiting<Entry, Result> {
  key: string;
  entry: Entry;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/**
 * Joins entries that come at the same time into groups, and does the work once for each group: a transaction for each
 * entry would take most of the time. An entry that comes alone does not wait. Two groups that are under way never share a
 * key, or they would wait for each other's locks. While a group waits for a lock, groups of other keys begin.
 */
class GroupCommit<Entry, Result> {
  readonly #work: (entries: readonly Entry[]) => Promise<readonly Result[]>;
  #waiting: Waiting<Entry, Result>[] = [];
  readonly #keysAtWork = new Set<string>();
  #groups = 0;
  #isAboutToBegin = false;

  /** `work` returns a result for each of its entries, in their order. */
  constructor(work: (entries: readonly Entry[]) => Promise<readonly Result[]>) {
    this.#work = work;
  }

  add(key: string, entry: Entry): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, entry, resolve, reject });
      this.#beginSoon();
    });
  }

  /** Entries that come in the same turn of the event loop belong together. */
  #beginSoon(): void {
    if (this.#isAboutToBegin || this.#groups === GROUPS_AT_ONCE) return;
    this.#isAboutToBegin = true;
    setImmediate(() => {
      this.#isAboutToBegin = false;
      this.#begin();
    });
  }

  #begin(): void {
    while (this.#groups < GROUPS_AT_ONCE) {
      const group = this.#waiting.filter(({ key }) => !this.#keysAtWork.has(key)).slice(0, MOST_IN_A_GROUP);
      if (group.length === 0) return;
      const taken = new Set(group);
      this.#waiting = this.#waiting.filter((each) => !taken.has(each));
      for (const { key } of group) this.#keysAtWork.add(key);
      this.#groups++;
      void this.#run(group).then(() => {
        for (const { key } of group) this.#keysAtWork.delete(key);
        this.#groups--;
        this.#beginSoon();
      });
    }
  }

  async #run(group: readonly Waiting<Entry, Result>[]): Promise<void> {
    try {
      const results = await this.#work(group.map(({ entry }) => entry));
      for (const [at, { resolve }] of group.entries()) resolve(results[at] as Result);
    } catch (error) {
      if (group.length > 1 && !(error instanceof StorageUnavailable)) {
        // A single entry may be the cause, and would make each group fail that it is in.
        for (const each of group) await this.#run([each]);
      } else for (const { reject } of group) reject(error);
    }
  }
}

/** The batch of an item, as far as an outcome needs it. */
type Priced = Pick<BatchRecord, "model" | "price">;

/**
 * Stores the images of an item and records its success. The files are durable before the row names them. Returns null
 * when the lease was lost (the item was cancelled, or leased again): then the files are removed.
 */
export function finishItem(
  deps: { stores: Stores; blobs: BlobStore; finishes: ReturnType<typeof groupFinishes> },
  batch: Priced,
  item: LeasedItem,
  made: GeneratedImages<MadeImage>,
  nowMs: () => number,
): Promise<"success" | null> {
  const ids = { "imgbatch.batch.id": item.batchId, "imgbatch.item.id": item.id };
  return tracer.span("store", ids, async () => {
    const { modelVersion, seed = null, notes = [], usage = null } = made;
    const answer = storedAnswer(made.answer);
    const outputs: OutputRecord[] = [];
    for (const [imageIndex, { image, facts }] of made.images.entries()) {
      const blobKey = outputKey(item, imageIndex);
      const stored = await lendImage(image, (bytes) => deps.blobs.put(blobKey, bytes));
      const { id: itemId, batchId } = item;
      outputs.push({ itemId, batchId, imageIndex, blobKey, ...stored, ...facts, entryName: null });
    }
    const mimeType = made.images[0]?.facts.mimeType ?? null;
    const finished: LeasedItem = {
      ...item,
      status: "success",
      mimeType,
      imageCount: outputs.length,
      modelVersion,
      seed,
      notes,
      usage: addUsage(item.usage, usage),
      answer,
      error: null,
      finishedAtMs: nowMs(),
    };
    const call = lastCallFor(batch, item, outputs.length, usage);
    const { isOurs } = await deps.finishes.add(item.batchId, { item: finished, outputs, call });
    if (isOurs) return "success";
    // A commit that returned an error may have happened all the same: files that a row names stay.
    const named = new Set((await deps.stores.read.outputs.ofItem(item.id)).map((output) => output.blobKey));
    for (const { blobKey } of outputs) if (!named.has(blobKey)) await deps.blobs.delete(blobKey);
    return named.size > 0 ? "success" : null;
  });
}

/** An item with its success, whose images are stored. */
interface Finish {
  item: LeasedItem;
  outputs: readonly OutputRecord[];
  call: Call | null;
}

/** Many items of a process finish at the same time, and those of a batch would wait for each other's commits. */
export function groupFinishes(stores: Stores): GroupCommit<Finish, { isOurs: boolean }> {
  return new GroupCommit((entries) => stores.write((tx) => recordAll(tx, entries)));
}

async function recordAll(tx: Transaction, finishes: readonly Finish[]): Promise<{ isOurs: boolean }[]> {
  const items = finishes.map(({ item }) => item);
  await tx.lock("batch", ...new Set(items.map(({ batchId }) => batchId)));
  const isOurs = new Set(await tx.items.finish(items));
  if (isOurs.size === 0) return items.map(() => ({ isOurs: false }));
  const ours = finishes.filter(({ item }) => isOurs.has(item));
  const successes = new Map<string, Parameters<Transaction["batches"]["addCounts"]>[0]>();
  for (const { batchId: id } of isOurs)
    successes.set(id, { id, success: (successes.get(id)?.success ?? 0) + 1, fail: 0 });
  await tx.batches.addCounts(...successes.values());
  await tx.outputs.insertMany(ours.flatMap(({ outputs }) => outputs));
  const nowMs = Math.max(...ours.map(({ item }) => item.finishedAtMs ?? 0));
  await recordCalls(
    tx,
    ours.flatMap(({ call }) => call ?? []),
    nowMs,
  );
  return items.map((item) => ({ isOurs: isOurs.has(item) }));
}

/** Returns the failure of an item of which a request was sent that may be paid, for the reason that is given. */
export function unknownOutcome(why: Pick<ItemError, "message" | "source" | "said">): ItemError {
  const { message, source, said } = why;
  return { code: "OUTCOME_UNKNOWN", message: `${message} ${NOT_AGAIN}`, source, ...(said ? { said } : {}) };
}

/** Why an item failed for good, with the model that said so and what its upstream answered. */
type FailedItem = ItemError & Partial<Pick<ProviderError, "modelVersion" | "answer" | "usage">>;

/** Returns what all requests for an item took: `before`, and the last one, whose time it has. Costs that are not all known are null. */
export function addUsage(before: UpstreamUsage | null, last: UpstreamUsage | null): UpstreamUsage | null {
  if (before === null || last === null) return last ?? before;
  const sum = (name: "inputTokens" | "outputTokens" | "costMicroUsd") => {
    const [first, second] = [before[name], last[name]];
    return first === null || second === null ? null : first + second;
  };
  const [inputTokens, outputTokens] = [sum("inputTokens"), sum("outputTokens")];
  return { ...last, inputTokens, outputTokens, costMicroUsd: sum("costMicroUsd") };
}

const MOST_ANSWER_CHARS = 64 * 1024;

/** Returns an answer as it is kept with an item. One that is too long loses its signatures of thoughts, or all of its words. */
function storedAnswer(answer: VerbatimAnswer | null | undefined): VerbatimAnswer | null {
  if (!answer) return null;
  const isShort = (value: VerbatimAnswer) => JSON.stringify(value).length <= MOST_ANSWER_CHARS;
  if (isShort(answer)) return answer;
  const unsigned = JSON.stringify(answer, (name, value) => (name === "thoughtSignature" ? undefined : value));
  return unsigned.length <= MOST_ANSWER_CHARS ? (JSON.parse(unsigned) as VerbatimAnswer) : null;
}

/** Records the final failure of an item. Returns null when its lease was lost. */
export async function failItem(
  stores: Stores,
  batch: Priced,
  item: LeasedItem,
  error: FailedItem,
  nowMs: number,
): Promise<"failed" | null> {
  const { isOurs } = await stores.write(async (tx) => {
    await tx.lock("batch", item.batchId);
    return failLeased(tx, batch, item, error, nowMs);
  });
  return isOurs ? "failed" : null;
}

/** The same in a transaction that has locked the batch. */
export async function failLeased(
  tx: Transaction,
  batch: Priced,
  item: LeasedItem,
  { code, message, source, said, modelVersion = null, usage = null, ...failure }: FailedItem,
  nowMs: number,
): Promise<{ isOurs: boolean }> {
  const error: ItemError = { code, message, source, ...(said ? { said } : {}) };
  const maybePaid = code === "OUTCOME_UNKNOWN" && item.maybePaid === "no" ? "once" : item.maybePaid;
  const finished: LeasedItem = {
    ...item,
    status: "failed",
    mimeType: null,
    imageCount: 0,
    modelVersion,
    seed: null,
    notes: [],
    usage: addUsage(item.usage, usage),
    answer: storedAnswer(failure.answer),
    error,
    maybePaid,
    finishedAtMs: nowMs,
  };
  if ((await tx.items.finish([finished])).length === 0) return { isOurs: false };
  await tx.batches.addCounts({ id: item.batchId, success: 0, fail: 1 });
  await recordItemCall(tx, batch, item, { usage, nowMs });
  return { isOurs: true };
}

/** Adds the last call for an item, which made no image, to the sums of its provider. */
export async function recordItemCall(
  tx: Transaction,
  batch: Priced,
  item: LeasedItem,
  { usage = null, nowMs }: { usage?: UpstreamUsage | null; nowMs: number },
): Promise<void> {
  const call = lastCallFor(batch, item, 0, usage);
  if (call !== null) await recordCalls(tx, [call], nowMs);
}

/** Only a success is billed. */
function lastCallFor(
  { model }: Priced,
  { provider, maybePaid, priceMicroUsd }: LeasedItem,
  images: number,
  usage: UpstreamUsage | null,
): Call | null {
  if (provider === null) return null;
  const isMaybePaidTwice = maybePaid === "twice";
  const billedMicroUsd = images > 0 ? priceMicroUsd : 0;
  return { provider, model, images, isError: images === 0, isMaybePaidTwice, billedMicroUsd, usage };
}

/** Where the images of a batch are kept. */
export function outputsPrefix(batchId: string): string {
  return `outputs/${batchId}/`;
}

/** The lease is part of the name, so that a worker that lost it cannot touch the files of its successor. */
function outputKey(item: LeasedItem, imageIndex: number): string {
  return `${outputsPrefix(item.batchId)}${item.id}-${item.leaseToken.slice(0, 12)}-${imageIndex}`;
}
