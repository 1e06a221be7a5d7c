import { imageSizePx } from "../../contract/images/image-sizes.ts";
import { seedOf } from "../../kernel/ids.ts";
import type { ImageRequest } from "../ports/image-provider.ts";
import type { CheckedContent } from "./checked-content.ts";

/** Returns the request to a provider for the image of the real-time request `id`. */
export function imageRequest(request: CheckedContent, executed: string, id: string): ImageRequest {
  const { prompt, earlier, size, ratio, mimeType, images } = request;
  return {
    model: executed,
    prompt,
    earlier,
    outputIndex: 0,
    tier: size,
    ratio,
    size: imageSizePx(size, ratio),
    mimeType,
    references: images,
    storedReferences: [],
    attempt: 1,
    seed: seedOf(id),
    origin: "realtime",
  };
}
