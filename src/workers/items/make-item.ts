import { type GeneratedImages, ProviderError } from "../../domain/ports/image-provider.ts";
import { StorageUnavailable } from "../../domain/ports/storage-unavailable.ts";
import type { WorkerDeps } from "../deps.ts";
import { buildImageRequest } from "../image-request.ts";
import { slotsOf } from "../provider-slots.ts";
import type { ItemRequest } from "./item-batch.ts";
import type { ItemAttempt } from "./record-item.ts";

const TROUBLE_DELAY_MS = 1000;

interface Gates {
  /** Whether it may still be sent: much can happen between its claim and its request. */
  maySend(): boolean;
  /** Called when a large answer has come and the slot is free. */
  onAnswered(bytes: number): void;
}

/**
 * Asks the provider for one item's image, as soon as there is a slot. Never rejects. While the storage cannot give the
 * reference images, it waits: that is no failure of the provider. Sends nothing once the request is aborted.
 */
export async function makeItem(deps: WorkerDeps, request: ItemRequest, gates: Gates): Promise<ItemAttempt> {
  const { active, work, controller } = request;
  const { item, offer } = work;
  const { signal } = controller;
  // Its claim may have been on its way when the batch was held.
  if (active.isHeld || !gates.maySend()) return { aborted: true, isSent: false };
  for (;;) {
    try {
      const slots = slotsOf(offer.provider);
      const made = await slots.run(false, signal, (release) => ask(deps, request, gates, release));
      if (!signal.aborted) return made;
      await made.discard?.();
      return { aborted: true, isSent: request.isSent };
    } catch (error) {
      if (signal.aborted) return { aborted: true, isSent: request.isSent };
      if (error instanceof ProviderError) return error;
      if (!(error instanceof StorageUnavailable) || request.isSent) {
        deps.log.error("provider failed unexpectedly", { error: String(error) });
        return new ProviderError("PROVIDER_ITEM_FAILED", "The provider failed.", {
          retryable: true,
          trouble: offer.provider.upstream ? (request.isSent ? "ambiguous" : "failing") : null,
        });
      }
      const facts = { batch: item.batchId, item: item.id, error: String(error) };
      deps.log.error("the reference images of an item cannot be read; trying again", facts);
      await deps.clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
      if (signal.aborted) return { aborted: true, isSent: false };
    }
  }
}

/** Runs in a slot. The references are read now: while the item waited, they may have been damaged. */
async function ask(
  deps: WorkerDeps,
  request: ItemRequest,
  { maySend, onAnswered }: Gates,
  release: () => void,
): Promise<GeneratedImages> {
  const { work, controller } = request;
  const { batch, item, offer, ticket, hasReferences } = work;
  const { signal } = controller;
  const moveTo = (state: "unsent" | "sent") => {
    if (maySend()) request.state = state;
    else controller.abort();
    signal.throwIfAborted();
  };
  const onSent = () => {
    moveTo("sent");
    request.isSent = true;
  };
  try {
    moveTo("unsent");
    const image = await buildImageRequest(deps, batch, item, offer.executedModel, hasReferences);
    signal.throwIfAborted();
    return await offer.provider.generate(image, signal, onSent, (bytes) => {
      release();
      onAnswered(bytes);
    });
  } catch (error) {
    // The next request may have the slot at once. It must not go to a provider that begins to pause.
    const isFailure = error instanceof ProviderError && !signal.aborted;
    if (isFailure) void ticket.failed(error, String(item.id));
    throw error;
  }
}
