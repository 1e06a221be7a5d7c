import type { GenerateContentResponse } from "../../../contract/native-api/generate-content.ts";
import type { GeneratedContent } from "../../../domain/realtime/generate.ts";
import { joinTurns } from "../../../kernel/text.ts";
import { usageOf } from "./tokens.ts";

/**
 * The response of the real-time API. A refused prompt has no candidates; a model that made no image has one without
 * content.
 */
export function contentView(content: GeneratedContent): GenerateContentResponse {
  const { request, executed, images, refusal, modelVersion, id } = content;
  const usageMetadata = usageOf({
    model: executed,
    prompt: joinTurns(request.earlier, request.prompt),
    inputImages: request.images.length,
    size: request.size,
    outputImages: images.length,
  });
  const facts = { usageMetadata, modelVersion, responseId: id };
  if (refusal !== null) {
    return { promptFeedback: { blockReason: "PROHIBITED_CONTENT", blockReasonMessage: refusal }, ...facts };
  }
  if (images.length === 0) {
    const finishMessage = "The model made no image.";
    return { candidates: [{ finishReason: "NO_IMAGE", finishMessage, index: 0 }], ...facts };
  }
  const parts = images.map(({ bytes, facts: { mimeType } }) => ({
    inlineData: { mimeType, data: bytes.toString("base64") },
  }));
  return { candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }], ...facts };
}

/** The first event of a stream whose image takes long. */
export function openingView(): GenerateContentResponse {
  return { candidates: [{ content: { role: "model", parts: [] }, index: 0 }] };
}
