import type { ItemError, ItemStatus } from "../../contract/statuses.ts";
import {
  addUsage,
  failItem,
  failLeased,
  finishItem,
  recordItemCall,
  unknownOutcome,
} from "../../domain/batches/finish-item.ts";
import { noteOutage, waitingOn } from "../../domain/health/waiting.ts";
import { type Asked, askInTurn, type FailedTurn, type Turn } from "../../domain/images/ask-in-turn.ts";
import type { MadeImage } from "../../domain/images/output-images.ts";
import { identityOf, isPaid, mayBePaidTwice } from "../../domain/models.ts";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import {
  type GeneratedImages,
  ProviderError,
  type TaskMemory,
  type UpstreamUsage,
} from "../../domain/ports/image-provider.ts";
import type { BatchRecord, LeasedItem, MaybePaid, ReferenceRecord } from "../../domain/records.ts";
import { backoffMs, yieldToEventLoop } from "../../kernel/pacing.ts";
import type { WorkerDeps } from "../deps.ts";
import { buildImageRequest, inspectOutput } from "../image-request.ts";
import { slotsOf } from "../provider-slots.ts";
import { TROUBLE_DELAY_MS } from "../worker-pool.ts";

/** A request for one item, from its claim until its result is recorded. */
export interface ItemRequest extends Turn {
  batch: BatchRecord;
  item: LeasedItem;
  controller: AbortController;
  /** Whether another provider may make the item if this one refuses it. */
  hasOther: boolean;
  /**
   * `waiting`: it has no slot. `unsent`: nothing has left for the provider. `sent`: it may be paid. `answered`: its slot is
   * free, and its result is being recorded.
   */
  state: "waiting" | "unsent" | "sent" | "answered";
  /** Whether anything has left for the provider. */
  isSent: boolean;
  /** The size of its images once it is answered. */
  bytes: number;
  /** Set by a stop that goes on without it as soon as its task is known. */
  endsWithTask?: boolean;
}

interface Gates {
  /** Whether it may still be sent: much can happen between its claim and its request. */
  maySend(): boolean;
  /** Called when the answer has come and the slot is free. */
  onAnswered(bytes: number): void;
}

/**
 * Asks the provider for one item's image, as soon as there is a slot. Returns the images, or why there is none; `aborted`: the
 * signal of the request stopped it, perhaps after it had left. Never rejects. While the storage cannot give the
 * reference images, it waits: that is no failure of the provider. Sends nothing once the request is aborted.
 */
export async function makeItem(deps: WorkerDeps, request: ItemRequest, gates: Gates): Promise<Asked> {
  const { item, controller } = request;
  const asked = await askInTurn(deps, [request], {
    id: String(item.id),
    signal: controller.signal,
    ask: () => askInSlot(deps, request, gates),
    read: (_, output) => inspected(deps, request, output, gates),
    isSent: () => request.isSent,
    hasTask: () => item.task !== null,
  });
  // One turn always has an outcome.
  return asked as Asked;
}

async function askInSlot(deps: WorkerDeps, request: ItemRequest, gates: Gates): Promise<GeneratedImages> {
  const { item, offer, controller } = request;
  const { signal } = controller;
  // Its claim may have been on its way when the batch was held.
  if (!gates.maySend()) controller.abort();
  for (;;) {
    try {
      signal.throwIfAborted();
      // Their records are read before there is a slot, which would be idle meanwhile.
      const references = await deps.stores.read.references.ofSource(item.batchId, item.sourceIndex);
      return await slotsOf(offer.provider).run(false, signal, (release) =>
        ask(deps, request, references, gates, release),
      );
    } catch (error) {
      if (signal.aborted || !(error instanceof StorageUnavailable) || request.isSent) throw error;
      const facts = { batch: item.batchId, item: item.id, error: String(error) };
      deps.log.error("the reference images of an item cannot be read; trying again", facts);
      request.state = "waiting";
      await deps.clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
    }
  }
}

const NO_COSTS = { inputTokens: null, outputTokens: null, costMicroUsd: null };

/** Runs in a slot. The reference images are read now: while the item waited, they may have been damaged. */
async function ask(
  deps: WorkerDeps,
  request: ItemRequest,
  references: readonly ReferenceRecord[],
  { maySend, onAnswered }: Gates,
  release: () => void,
): Promise<GeneratedImages> {
  const { batch, item, offer, permit, controller } = request;
  const { signal } = controller;
  const moveTo = (state: "unsent" | "sent") => {
    if (maySend()) request.state = state;
    else controller.abort();
    signal.throwIfAborted();
  };
  let beganMs = 0;
  const begin = () => {
    beganMs = deps.clock.monotonicMs();
  };
  const onSent = () => {
    moveTo("sent");
    request.isSent = true;
    // The clock starts again here: waiting for the rate of the upstream is no time of making.
    begin();
  };
  try {
    moveTo("unsent");
    const image = await buildImageRequest(deps, batch, item, offer, references);
    // The stop may have been asked for meanwhile.
    moveTo("unsent");
    begin();
    const made = await offer.provider.generate(
      { ...image, task: taskOf(deps, request) },
      signal,
      onSent,
      (bytes) => {
        release();
        onAnswered(bytes);
      },
    );
    const tookMs = Math.round(deps.clock.monotonicMs() - beganMs);
    return { ...made, usage: { ...(made.usage ?? NO_COSTS), tookMs } };
  } catch (error) {
    // The next request may have the slot at once. It must not go to a provider that begins to pause.
    const isFailure = error instanceof ProviderError && !signal.aborted;
    if (isFailure) void permit.failed(error, String(item.id));
    throw error;
  }
}

/** Keeps the task of an item in its row. A worker that has lost the lease ends its request. */
function taskOf({ stores }: WorkerDeps, request: ItemRequest): TaskMemory {
  const { item, offer, controller } = request;
  const { task: known } = item;
  const keep = async (task: string) => {
    const kept = { task, upstream: identityOf(offer.provider) };
    const { isOurs } = await stores.write((tx) => tx.items.keepTask(item.id, item.leaseToken, kept));
    if (isOurs) Object.assign(item, { task, failedAt: null });
    if (!isOurs || request.endsWithTask) controller.abort();
    controller.signal.throwIfAborted();
  };
  return { known, keep };
}

const RETRY_BACKOFF = { baseMs: 1000, capMs: 30_000 };
/** The longest pause after any other failure to record: it may come back each time. */
const LONGEST_FAULT_DELAY_MS = 600_000;
/** The shortest pause of an item that was refused for too many requests, when the upstream announces none. */
const SLOWED_DELAY_MS = 3000;
/** The shortest pause after a connection that could not be made. */
const UNREACHABLE_DELAY_MS = 5000;

/** `retry`: the item waits for another try. `lost`: it is no longer this worker's. */
type ItemOutcome = ItemStatus | "retry" | "lost";

/**
 * Records what came of asking for an item. Never rejects: after a failure of the storage it tries to record the same image
 * again, because making it again would cost again. Returns `lost` when the signal stopped it meanwhile.
 */
export async function recordItem(deps: WorkerDeps, request: ItemRequest, asked: Asked): Promise<ItemOutcome> {
  const { batch, item } = request;
  const { signal } = request.controller;
  for (let tries = 1; ; tries++) {
    try {
      if (asked.kind === "aborted") return await recordAbort(deps, request);
      if (asked.kind === "failed") return await recordFailure(deps, request, asked);
      const status = await finishItem(deps, batch, item, asked.made, () => deps.clock.nowMs());
      if (status === "success") batch.waitingSinceMs = null;
      return status ?? "lost";
    } catch (error) {
      const facts = { batch: item.batchId, item: item.id, error: String(error) };
      deps.log.error("item could not be recorded; trying again", facts);
      if (signal.aborted) return "lost";
      const growth = error instanceof StorageUnavailable ? 1 : 2 ** (tries - 1);
      const delayMs = Math.min(TROUBLE_DELAY_MS * growth, LONGEST_FAULT_DELAY_MS);
      await deps.clock.sleep(delayMs, signal).catch(() => {});
    }
  }
}

/** Decodes the images: the upstream's word is not enough. */
async function inspected(
  deps: WorkerDeps,
  { item, offer }: ItemRequest,
  output: GeneratedImages,
  { onAnswered }: Gates,
): Promise<GeneratedImages<MadeImage>> {
  onAnswered(output.images.reduce((sum, { length }) => sum + length, 0));
  await yieldToEventLoop();
  try {
    return await inspectOutput(deps, offer, item, output);
  } catch (error) {
    if (error instanceof ProviderError) throw error;
    deps.log.error("an image could not be inspected", { error: String(error) });
    throw new ProviderError("INVALID_IMAGE_OUTPUT", "The image could not be inspected.", {
      source: "service",
    });
  }
}

/** Tries of one item in all that the upstream reported as failed, the first included. */
const MAX_ATTEMPTS = 3;

/**
 * What follows from a failure for the item. Without costs a lost answer is like any other failure. The first request after a
 * pause does not count: it was sent to learn whether the upstream works.
 * - `again`: nothing was made, and the item is not at fault, or its task is known. It waits as long as it must.
 * - `counted`: nothing was made. The item has `MAX_ATTEMPTS` tries.
 * - `unknown`: an image may have been made and paid. What follows is `WorkerDeps.unknownOutcome`: nothing, or one more
 *   request, and the item is marked.
 */
function itemRule({ turn: { offer, permit }, error, meaning }: FailedTurn): "again" | "counted" | "unknown" {
  if (meaning === "final") return "counted";
  if (meaning === "task") return "again";
  if (meaning === "lost" && mayBePaidTwice(offer.provider)) return "unknown";
  const isCounted = error.trouble === "failing" || error.trouble === "ambiguous";
  return isCounted && !permit.isProbe ? "counted" : "again";
}

async function recordFailure(
  deps: WorkerDeps,
  request: ItemRequest,
  failed: FailedTurn,
): Promise<ItemOutcome> {
  const { item, offer, batch } = request;
  const { error, meaning } = failed;
  const { trouble } = error;
  const nowMs = deps.clock.nowMs();
  const rule = itemRule(failed);
  const attempts = rule === "again" ? item.attempts : item.attempts + 1;
  const mayRetry = {
    again: true,
    counted: error.retryable && attempts < MAX_ATTEMPTS,
    unknown: deps.unknownOutcome === "once" && item.maybePaid === "no",
  }[rule];
  if (!mayRetry) {
    const isLost = isPaid(offer.provider) && trouble === "ambiguous";
    const failure = isLost ? unknownOutcome(error) : error;
    return (await failItem(deps.stores, batch, item, failure, nowMs)) ?? "lost";
  }
  const isSlowed = trouble === "limited" && deps.health.blockOf(offer.provider, offer.executedModel) === null;
  return giveBack(deps, request, {
    delayMs: isSlowed && request.hasOther ? 0 : delayOf(deps, error, attempts, isSlowed),
    attempts,
    failedAt: trouble === null || item.task !== null ? item.failedAt : offer.provider.name,
    maybePaid: rule === "unknown" ? "once" : item.maybePaid,
    // An unknown outcome counts at the list price.
    usage: rule === "unknown" ? item.usage : addUsage(item.usage, error.usage),
    called: error.usage,
    outage: rule === "again" && !isSlowed ? (meaning === "task" ? withTask(error) : error) : null,
    isCall: true,
  });
}

/** The item may fail with it when the outage has lasted for too long. */
function withTask(error: ProviderError): ProviderError {
  return new ProviderError(error.code, `${error.message} Its task was begun, and may be billed.`, error);
}

/** `isSlowed`: the provider takes other requests, so that only this item waits. */
function delayOf(
  deps: WorkerDeps,
  { trouble, retryAfterMs }: ProviderError,
  attempts: number,
  isSlowed: boolean,
): number {
  if (isSlowed) return retryAfterMs || SLOWED_DELAY_MS * (1 + deps.random() / 2);
  if (trouble === "unreachable") return UNREACHABLE_DELAY_MS * (1 + deps.random());
  const isCounted = trouble === null || trouble === "failing" || trouble === "ambiguous";
  // All other troubles pause the provider, so the item tries the next provider at once.
  if (!isCounted) return 0;
  const ownMs = backoffMs(Math.max(1, attempts), RETRY_BACKOFF, deps.random);
  return trouble === null ? (retryAfterMs ?? ownMs) : Math.min(retryAfterMs ?? ownMs, RETRY_BACKOFF.capMs);
}

/** A stop may leave a request behind that is paid: see `WorkerDeps.unknownOutcome`. */
async function recordAbort(deps: WorkerDeps, request: ItemRequest): Promise<ItemOutcome> {
  const { item, offer, batch, isSent } = request;
  const { attempts, failedAt, usage } = item;
  // A known task is asked for again.
  const isCall = isSent && item.task === null;
  const isUnknown = isCall && mayBePaidTwice(offer.provider);
  if (isUnknown && (deps.unknownOutcome === "stop" || item.maybePaid === "twice")) {
    const failure = stoppedOutcome(item);
    return (await failItem(deps.stores, batch, item, failure, deps.clock.nowMs())) ?? "lost";
  }
  // The mark was set for a request that was not sent after all.
  const unsent: MaybePaid = item.maybePaid === "no" ? "no" : "once";
  const maybePaid = isUnknown ? "once" : item.task === null ? unsent : item.maybePaid;
  return giveBack(deps, request, { delayMs: 0, attempts, failedAt, maybePaid, usage, outage: null, isCall });
}

/** The final failure of an item that was sent to a paid upstream when the service was stopped. */
export function stoppedOutcome({ maybePaid }: Pick<LeasedItem, "maybePaid">): ItemError {
  const message =
    maybePaid === "twice"
      ? "Two requests were sent and no outcome is known, because the service was stopped. Both may be paid."
      : "The service was stopped before the answer of the upstream came.";
  return unknownOutcome({ message, source: "service" });
}

/** With the error of an `outage`, the item fails when that has lasted for too long. */
async function giveBack(
  deps: WorkerDeps,
  { batch, item, offer }: ItemRequest,
  change: {
    delayMs: number;
    attempts: number;
    failedAt: string | null;
    maybePaid: MaybePaid;
    /** The sums of the item, and the report about this request. */
    usage: UpstreamUsage | null;
    called?: UpstreamUsage | null;
    outage: ProviderError | null;
    isCall: boolean;
  },
): Promise<ItemOutcome> {
  const { delayMs, isCall, outage, called = null, ...marks } = change;
  const { presence, outageMs } = deps;
  const nowMs = deps.clock.nowMs();
  // 0 means now. It stays due even if the clock is set back.
  const notBeforeMs = delayMs === 0 ? 0 : nowMs + Math.round(delayMs);
  const { outcome, waitingSinceMs } = await deps.stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    let { waitingSinceMs } = batch;
    if (outage) {
      const { trouble, message, said } = outage;
      const block = {
        provider: offer.provider.name,
        trouble: trouble ?? "failing",
        message,
        said,
        untilMs: notBeforeMs,
      };
      const waiting = waitingOn(block);
      const facts = { batchId: batch.id, workerId: presence.id, nowMs, outageMs, waiting };
      const { sinceMs, isOver } = await noteOutage(tx, facts);
      waitingSinceMs = sinceMs;
      if (isOver) {
        const isLost = item.task !== null && isPaid(offer.provider);
        const failure = isLost ? unknownOutcome(outage) : outage;
        const { isOurs } = await failLeased(tx, batch, item, failure, nowMs);
        return { outcome: isOurs ? "failed" : "lost", waitingSinceMs } as const;
      }
    }
    const { isOurs } = await tx.items.giveBack(item.id, item.leaseToken, {
      notBeforeMs,
      delayedAtMs: nowMs,
      ...marks,
    });
    if (isOurs && isCall) await recordItemCall(tx, batch, item, { usage: called, nowMs });
    return { outcome: isOurs ? "retry" : "lost", waitingSinceMs } as const;
  });
  batch.waitingSinceMs = waitingSinceMs;
  return outcome;
}
