import type { ImageRequest } from "../../../domain/ports/image-provider.ts";
import { ReferenceText } from "../request-body.ts";

/** The model that makes one size only and has no field for it (vendor's guide to image generation). */
const WITHOUT_SIZES = /gemini-2\.5-flash-image/;
/** The models that refuse a request with a seed (noted in 2026-10). */
const WITHOUT_SEED = /nano-banana/;

export const takesSeed = (model: string): boolean => !WITHOUT_SEED.test(model);

/** The body of `generateContent`. The references in it are read when it is sent. */
export function generateContentBody(request: ImageRequest): object {
  const { model, prompt, earlier, references, ratio, keepsRatio, tier, seed } = request;
  const images = references.map((image) => ({
    inlineData: { mimeType: image.mimeType, data: new ReferenceText(image) },
  }));
  return {
    contents: [
      ...(earlier ? [{ role: "user", parts: [{ text: earlier }] }] : []),
      { role: "user", parts: [{ text: prompt }, ...images] },
    ],
    generationConfig: {
      responseModalities: ["TEXT", "IMAGE"],
      imageConfig: {
        // Without one the vendor keeps that of the first reference.
        ...(keepsRatio ? {} : { aspectRatio: ratio }),
        ...(WITHOUT_SIZES.test(model) ? {} : { imageSize: tier }),
      },
      ...(takesSeed(model) ? { seed } : {}),
    },
  };
}
