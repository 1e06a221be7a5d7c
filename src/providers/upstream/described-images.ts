import { readImageHeader } from "../../contract/images/image-header.ts";
import type { GeneratedImages, ImageRequest } from "../../domain/ports/image-provider.ts";
import { isBareImage } from "../../imaging/bare-image.ts";
import { addMetadata } from "../../imaging/picture-metadata.ts";
import { formatUsd, microsToNumber } from "../../kernel/money.ts";
import { joinTurns } from "../../kernel/text.ts";

/** Larger files are not copied for it. */
const MAX_BYTES = 32 * 1024 * 1024;

/**
 * Writes how an image was made into each file that holds nothing but a picture, beside its pixels, which stay as they
 * are. Every other file stays as the upstream made it: a signature of its origin (C2PA) covers the whole file.
 */
export function describeImages(provider: string, request: ImageRequest, made: GeneratedImages): Buffer[] {
  const { model, earlier = "", outputIndex } = request;
  const { modelVersion, seed = null, usage } = made;
  const prompt = joinTurns(earlier, request.prompt);
  const cost = usage?.costMicroUsd ?? null;
  return made.images.map((image) => {
    const { mimeType, widthPx, heightPx } = readImageHeader(image) ?? {};
    if (!mimeType || !widthPx || !heightPx) return image;
    if (image.length > MAX_BYTES || !isBareImage(image, mimeType)) return image;
    const metadata = {
      software: `imgbatch, with the provider ${provider}`,
      prompt,
      settings: {
        Seed: seed,
        Size: `${widthPx}x${heightPx}`,
        Model: model,
        Version: modelVersion,
        "Request cost": cost === null ? null : formatUsd(cost),
      },
      details: {
        provider,
        prompt,
        model,
        model_version: modelVersion,
        seed,
        index: outputIndex,
        request_cost_usd: cost === null ? null : microsToNumber(cost),
      },
    };
    return addMetadata(image, mimeType, { widthPx, heightPx }, metadata);
  });
}
