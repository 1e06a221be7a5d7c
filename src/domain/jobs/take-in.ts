import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import type { BatchSource, ItemError } from "../../contract/statuses.ts";
import type { Clock } from "../../kernel/clock.ts";
import { amountText } from "../../kernel/money.ts";
import { hasItems } from "../batches/lifecycle.ts";
import { ItemsDraft, writeItems } from "../batches/write-items.ts";
import { type CheckedContent, NO_NEEDS, needsOf } from "../checked-content.ts";
import {
  identityOf,
  inputImageLimit,
  type ModelEntry,
  type Offer,
  type Offers,
  type OptionFacts,
  optionsOf,
  unmetNeed,
} from "../models.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Needs } from "../ports/image-provider.ts";
import type { NewItem, Stores } from "../ports/stores.ts";
import type { BatchError, BatchRecord } from "../records.ts";

/** A line of a batch job: a request that has passed every check, or why it is not made. */
export type Line = {
  /** The client's name of the line, as JSON; null when it has none. */
  key: string | null;
  /** Begins a message about the line: where it is in its file. Default: empty. */
  place?: string;
  /** No line of the job is made before this time. Default: any time. */
  notBeforeMs?: number;
} & ({ content: CheckedContent } | { error: ItemError });

/** The error of a line that is no valid request. */
export function invalidLine(message: string): ItemError {
  return { code: "INVALID_ARGUMENT", message, source: "service" };
}

/** The job of some lines: they can name the files of its key. */
export type JobOfLines = Pick<BatchRecord, "apiKeyId" | "input" | "upstream"> & {
  /** What its lines may ask for. */
  options: OptionFacts;
  /** How many input images the providers of the job take. */
  imageLimit: number;
};

/**
 * Reads the lines of a job from its input, one at a time. The content of a line can be used until the next one is
 * asked for. Throws `ImgbatchError` when the job as a whole fails, and `StorageUnavailable` when the disk refuses its images.
 */
export type LineReader = (
  model: ModelEntry,
  input: AsyncIterable<Buffer>,
  job: JobOfLines,
) => AsyncIterable<Line>;

export interface TakeInDeps {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
  models: readonly ModelEntry[];
  offers: Offers;
  limits: Pick<Limits, "linesPerJob">;
  /** The readers of the surfaces that take batch jobs. */
  lineReaders: Partial<Record<BatchSource, LineReader>>;
}

/** The outcome of reading the input of a batch. */
type TakenIn = { items: readonly NewItem[] } | { error: BatchError };

/** The items of a job, as far as its lines were read. */
interface ReadLines {
  draft: ItemsDraft;
  needs: Needs;
  textChars: number;
  /** No item is made before. */
  notBeforeMs: number;
}

/**
 * Reads the input of a batch: stores the images of its lines, then writes its items and its hold in one transaction. It can
 * be repeated from the start at any point: what was stored before is the same. Returns the items that were written, or why
 * the batch cannot be processed; null when `isOver` or when the batch has moved on, without any change.
 */
export async function takeIn(
  deps: TakeInDeps,
  batch: BatchRecord,
  isOver: () => boolean,
): Promise<TakenIn | null> {
  try {
    const lines = await readAll(deps, batch, isOver);
    return lines && (await write(deps, batch, lines));
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    return { error: { code: error.code, message: error.message, source: "service" } };
  }
}

async function readAll(
  deps: TakeInDeps,
  batch: BatchRecord,
  isOver: () => boolean,
): Promise<ReadLines | null> {
  const { input, source } = batch;
  const model = deps.models.find(({ id }) => id === batch.model);
  if (!model) throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", "The model is not configured any more.");
  const read = deps.lineReaders[source];
  const bytes = input && (await deps.blobs.open(input.blobKey));
  if (!bytes || !read) throw unusable("The input file does not exist any more.");
  const draft = new ItemsDraft(batch, model);
  const lines: ReadLines = { draft, needs: NO_NEEDS, textChars: 0, notBeforeMs: 0 };
  let moneyMicroUsd = 0;
  try {
    const offers = ownOffers(deps, batch);
    const options = optionsOf(model, offers[0]?.provider ?? {}, offers[0]?.executedModel);
    const job = { ...batch, options, imageLimit: inputImageLimit(offers) };
    for await (const line of read(model, whileWanted(bytes, isOver), job)) {
      if (isOver()) return null;
      if (draft.items.length === deps.limits.linesPerJob) {
        throw unusable(`The input has more than ${deps.limits.linesPerJob} lines.`);
      }
      await addLine(deps, batch, lines, line);
      if (draft.holdMicroUsd > moneyMicroUsd) moneyMicroUsd = await moneyFor(deps, batch, draft.holdMicroUsd);
      if (lines.textChars > FIXED_LIMITS.jobTextChars) {
        const millions = Math.floor(FIXED_LIMITS.jobTextChars / 1e6);
        throw unusable(`The texts of the lines have more than ${millions} million characters together.`);
      }
    }
  } finally {
    bytes.destroy();
  }
  if (isOver()) return null;
  if (draft.items.length === 0) throw unusable("The input has no lines.");
  return lines;
}

/** Returns how much the hold of a batch may be. Throws when that is less than its lines need so far. */
async function moneyFor({ stores }: TakeInDeps, batch: BatchRecord, neededMicroUsd: number): Promise<number> {
  const consentMicroUsd = batch.input?.consentMicroUsd ?? null;
  const mostMicroUsd =
    consentMicroUsd ?? (await stores.read.accounts.byId(batch.accountId))?.balanceMicroUsd ?? 0;
  if (neededMicroUsd <= mostMicroUsd) return mostMicroUsd;
  const most = consentMicroUsd === null ? "the balance is" : "the request agrees to";
  const message = `The job needs more on hold: ${most} ${amountText({ micros: mostMicroUsd, isPlay: batch.price.isPlay === true })}. Nothing was made.`;
  throw new ImgbatchError("BATCH_IMAGE_INSUFFICIENT_BALANCE", message);
}

/** Ends early when nobody wants the input any more: a line, or the gap between two of them, can be long. */
async function* whileWanted(bytes: AsyncIterable<Buffer>, isOver: () => boolean): AsyncGenerator<Buffer> {
  for await (const chunk of bytes) {
    if (isOver()) return;
    yield chunk;
  }
}

async function addLine(deps: TakeInDeps, batch: BatchRecord, lines: ReadLines, line: Line): Promise<void> {
  const { draft } = lines;
  const id = lineId(draft.sources);
  const clientKey = line.key;
  lines.textChars += clientKey?.length ?? 0;
  lines.notBeforeMs = Math.max(lines.notBeforeMs, line.notBeforeMs ?? 0);
  const error = "error" in line ? line.error : await storeImages(deps, batch, draft, line);
  if (error !== null || "error" in line) {
    draft.addFailed(id, clientKey, { error: error ?? invalidLine(""), atMs: deps.clock.nowMs() });
    return;
  }
  const { content } = line;
  const { prompt, earlier, verbatim } = content;
  draft.add(content, [id], clientKey);
  lines.needs = needsOf([content], lines.needs);
  lines.textChars += prompt.length + earlier.length;
  if (verbatim !== undefined) lines.textChars += JSON.stringify(verbatim).length;
}

/**
 * Stores the images of a line that can be made. Returns why it cannot. A file that the line names may be gone meanwhile: that is
 * the line's problem.
 */
async function storeImages(
  deps: TakeInDeps,
  batch: BatchRecord,
  draft: ItemsDraft,
  { content, place = "" }: { content: CheckedContent; place?: string },
): Promise<ItemError | null> {
  const problem = refusalOf(deps, batch, content);
  if (problem !== null) return invalidLine(place + problem);
  try {
    await draft.storeImages(deps.blobs, content, draft.sources);
    return null;
  } catch (error) {
    if (error instanceof ImgbatchError) return invalidLine(place + error.message);
    throw error;
  }
}

/** `line_000001` for the first. The client's own names of lines can repeat. */
function lineId(position: number): string {
  return `line_${String(position + 1).padStart(6, "0")}`;
}

/** Why the provider of a batch cannot make a line; null when it can, or when it is not configured now. */
function refusalOf(deps: TakeInDeps, batch: BatchRecord, content: CheckedContent): string | null {
  const found = unmetNeed(ownOffers(deps, batch), needsOf([content]));
  return found && `The line ${found.problem}.`;
}

/** The providers that the batch was priced with, without those that may take over. */
function ownOffers({ offers }: TakeInDeps, batch: BatchRecord): Offer[] {
  return offers.forBatch(batch).filter(({ provider }) => identityOf(provider) === batch.upstream);
}

async function write(deps: TakeInDeps, batch: BatchRecord, lines: ReadLines): Promise<TakenIn | null> {
  const { draft, needs, notBeforeMs } = lines;
  const { items, estimatedMicroUsd, holdMicroUsd } = draft;
  const nowMs = deps.clock.nowMs();
  for (const item of items) Object.assign(item, { notBeforeMs, delayedAtMs: nowMs });
  const isGranted = (batch.input?.consentMicroUsd ?? null) !== null;
  const failCount = items.filter(({ failed }) => failed !== undefined).length;
  const isWritten = await deps.stores.write(async (tx) => {
    const now = await tx.batches.locked(batch.id);
    if (now?.status !== "queued" || hasItems(now)) return false;
    const change = { itemCount: items.length, needs, estimatedMicroUsd, holdMicroUsd, inputReadAtMs: nowMs };
    await tx.batches.update(batch.id, { ...change, failCount });
    await writeItems(tx, { ...now, ...change }, draft, nowMs, { isGranted });
    return true;
  });
  return isWritten ? { items } : null;
}

const unusable = (message: string) => new ImgbatchError("BATCH_IMAGE_INVALID_ITEMS", message);
