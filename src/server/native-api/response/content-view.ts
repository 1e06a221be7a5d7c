import type { ImageMimeType, SizeTier } from "../../../contract/image-formats.ts";
import type { GenerateContentResponse } from "../../../contract/native-api.ts";
import type { GeneratedContent } from "../../../domain/realtime/generate.ts";
import { joinTurns } from "../../../kernel/text.ts";
import { usageOf } from "./tokens.ts";

/**
 * The response of the real-time API. A refused prompt has no candidates; a model that made no image has one without
 * content.
 */
export function contentView(content: GeneratedContent): GenerateContentResponse {
  const { request, executed, refusal, modelVersion, id } = content;
  const { prompt, earlier, size } = request;
  const images = content.images.map(({ image, facts: { mimeType } }) => ({
    mimeType,
    data: image.toString("base64"),
  }));
  const inputImages = request.images.length;
  return contentBody({ id, prompt, earlier, size, inputImages, executed, modelVersion, images, refusal });
}

/** The content of a response. */
export interface ContentFacts {
  id: string;
  prompt: string;
  earlier: string;
  size: SizeTier;
  inputImages: number;
  /** The model that ran, whose tokens are counted. */
  executed: string;
  modelVersion: string;
  images: readonly { mimeType: ImageMimeType; data: string }[];
  /** Why the prompt was refused; null when it was not. */
  refusal: string | null;
}

/** The same from its facts alone. */
export function contentBody({ refusal, images, ...asked }: ContentFacts): GenerateContentResponse {
  const usageMetadata = usageOf({
    model: asked.executed,
    prompt: joinTurns(asked.earlier, asked.prompt),
    inputImages: asked.inputImages,
    size: asked.size,
    outputImages: images.length,
  });
  const facts = { usageMetadata, modelVersion: asked.modelVersion, responseId: asked.id };
  if (refusal !== null) {
    return { promptFeedback: { blockReason: "PROHIBITED_CONTENT", blockReasonMessage: refusal }, ...facts };
  }
  if (images.length === 0) {
    const finishMessage = "The model made no image.";
    return { candidates: [{ finishReason: "NO_IMAGE", finishMessage, index: 0 }], ...facts };
  }
  const parts = images.map((inlineData) => ({ inlineData }));
  return { candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }], ...facts };
}

/** The first event of a stream whose image takes long. */
export function openingView(): GenerateContentResponse {
  return { candidates: [{ content: { role: "model", parts: [] }, index: 0 }] };
}
