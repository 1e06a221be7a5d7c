import { imageSizePx } from "../../contract/image-formats.ts";
import { seedOf } from "../../kernel/ids.ts";
import type { ImageRequest } from "../ports/image-provider.ts";
import type { CheckedContent } from "./checked-content.ts";

/** Returns the request to a provider for an image of the real-time request `id`. `index` counts its images from 0. */
export function imageRequest(
  request: CheckedContent,
  executed: string,
  { id, index }: { id: string; index: number },
): ImageRequest {
  const { prompt, earlier, size, ratio, keepsRatio, mimeType, images } = request;
  return {
    model: executed,
    prompt,
    earlier,
    outputIndex: index,
    tier: size,
    ratio,
    keepsRatio,
    size: imageSizePx(size, ratio),
    mimeType,
    references: images,
    storedReferences: [],
    attempt: 1,
    seed: seedOf(index === 0 ? id : `${id}/${index}`),
    origin: "realtime",
  };
}
