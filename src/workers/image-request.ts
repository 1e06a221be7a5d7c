import { DIFFERS } from "../contract/image-formats.ts";
import { type MadeImage, readOutput } from "../domain/images/output-images.ts";
import { ignoredBy, type Offer, requestedPixels } from "../domain/models.ts";
import {
  type GeneratedImages,
  type ImageOptions,
  type ImageRequest,
  ProviderError,
  type ReferenceImage,
} from "../domain/ports/image-provider.ts";
import { type BatchRecord, type ItemRecord, MASK_ORDINAL, type ReferenceRecord } from "../domain/records.ts";
import { seedOf, sha256Hex } from "../kernel/ids.ts";
import type { WorkerDeps } from "./deps.ts";

/**
 * Builds the request for an item of a batch, and checks its reference images and its mask. Throws
 * `ProviderError` `RESULT_MISSING` when a reference image is gone or damaged.
 */
export async function buildImageRequest(
  deps: Pick<WorkerDeps, "blobs" | "models">,
  batch: BatchRecord,
  item: ItemRecord,
  offer: Pick<Offer, "provider" | "executedModel">,
  references: readonly ReferenceRecord[],
): Promise<ImageRequest> {
  const { options } = item;
  const isMask = ({ ordinal }: ReferenceRecord) => ordinal === MASK_ORDINAL;
  const [mask] = await readReferences(deps, references.filter(isMask));
  return {
    model: offer.executedModel,
    prompt: item.prompt,
    outputIndex: item.outputIndex,
    earlier: item.earlier,
    options,
    pixels: requestedPixels(offer.provider, offer.executedModel, options),
    defaultQuality: deps.models.find(({ id }) => id === batch.model)?.defaultQuality,
    references: await readReferences(
      deps,
      references.filter((each) => !isMask(each)),
    ),
    ...(mask && { mask }),
    attempt: item.attempts + 1,
    seed: options.seed ?? seedOf(`${batch.id}/${item.customId}`),
    repeatKey: `ib1-item-${sha256Hex(`${batch.id}/${item.customId}`)}`,
    ...(item.verbatim && { verbatim: item.verbatim }),
    origin: batch.parentBatchId === null ? "batch" : "child-batch",
  };
}

/**
 * Decodes what a provider has made for an item: its word is not enough. Notes how the images differ from what was asked.
 * Throws `ProviderError` for an output without a usable image.
 */
export async function inspectOutput(
  { inspector }: Pick<WorkerDeps, "inspector">,
  offer: Pick<Offer, "provider" | "executedModel">,
  item: ItemRecord,
  output: GeneratedImages,
): Promise<GeneratedImages<MadeImage>> {
  const made = await readOutput(output, inspector, offer.provider);
  const ignored = ignoredBy(offer.provider, item.verbatim ?? undefined);
  const notes = [
    ...(output.notes ?? []),
    ...(offer.provider.upstream ? differences(made.images, item.options, offer) : []),
    ...(ignored.length > 0 ? [`the upstream takes no ${ignored.join(", ")}`] : []),
  ];
  return { ...made, notes };
}

/** Returns a note for each difference between the first image and what was asked for. */
function differences(
  images: readonly MadeImage[],
  options: ImageOptions,
  { provider, executedModel }: Pick<Offer, "provider" | "executedModel">,
): string[] {
  const facts = images[0]?.facts;
  if (!facts) return [];
  const { mimeType, widthPx, heightPx } = facts;
  const size = requestedPixels(provider, executedModel, options);
  const notes: string[] = [];
  if (mimeType !== options.mimeType)
    notes.push(`${DIFFERS}${options.mimeType}, the upstream sent ${mimeType}`);
  if (widthPx !== size.widthPx || heightPx !== size.heightPx) {
    notes.push(`${DIFFERS}${size.widthPx}x${size.heightPx} pixels, the upstream sent ${widthPx}x${heightPx}`);
  }
  return notes;
}

async function readReferences(
  deps: Pick<WorkerDeps, "blobs">,
  references: readonly ReferenceRecord[],
): Promise<ReferenceImage[]> {
  const images: ReferenceImage[] = [];
  for (const { blobKey, mimeType, sha256 } of references) {
    const isWhole = await deps.blobs.lend(blobKey, async (bytes) => sha256Hex(bytes) === sha256);
    if (!isWhole) throw unusable(isWhole === null ? "gone" : "damaged");
    images.push({
      mimeType,
      read: async () => (await deps.blobs.read(blobKey)) ?? Promise.reject(unusable("gone")),
      lend: (work) => lendBlob(deps, blobKey, work),
    });
  }
  return images;
}

async function lendBlob<T>(
  deps: Pick<WorkerDeps, "blobs">,
  key: string,
  work: (bytes: Buffer) => Promise<T>,
): Promise<T> {
  const done = await deps.blobs.lend(key, async (bytes) => ({ result: await work(bytes) }));
  if (done === null) throw unusable("gone");
  return done.result;
}

function unusable(what: "gone" | "damaged"): ProviderError {
  return new ProviderError("RESULT_MISSING", `A reference image is ${what}.`, { source: "service" });
}
