import type { ImageMimeType, SizeTier } from "../../contract/image-formats.ts";
import type { GenerateContentResponse } from "../../contract/native-api.ts";
import type { GeneratedContent } from "../../domain/realtime/realtime.ts";
import { joinTurns } from "../../kernel/text.ts";

/** Tokens of an output image, by family of model and size. A name with `pro-image` is of the family `pro`. */
const OUTPUT_TOKENS: Record<"pro" | "flash", Record<SizeTier, number>> = {
  pro: { "512": 1120, "1K": 1120, "2K": 1120, "4K": 2000 },
  flash: { "512": 747, "1K": 1120, "2K": 1680, "4K": 2520 },
};
const INPUT_IMAGE_TOKENS = { pro: 560, flash: 258 };
const BYTES_PER_TEXT_TOKEN = 4;

const familyOf = (model: string) => (model.includes("pro-image") ? "pro" : "flash");

type ModalityTokens = { modality: "TEXT" | "IMAGE"; tokenCount: number };

type Usage = {
  promptTokenCount: number;
  candidatesTokenCount: number;
  totalTokenCount: number;
  promptTokensDetails: ModalityTokens[];
  candidatesTokensDetails?: ModalityTokens[];
};

/**
 * The tokens of a request. An output image has the published count of the model that ran; text has a token for every
 * four bytes of UTF-8; an input image has the count of its family. Nothing is billed by tokens.
 */
export function usageOf(facts: {
  model: string;
  prompt: string;
  inputImages: number;
  size: SizeTier;
  outputImages: number;
}): Usage {
  const family = familyOf(facts.model);
  const text = Math.ceil(Buffer.byteLength(facts.prompt) / BYTES_PER_TEXT_TOKEN);
  const images = facts.inputImages * INPUT_IMAGE_TOKENS[family];
  const candidates = facts.outputImages * OUTPUT_TOKENS[family][facts.size];
  return {
    promptTokenCount: text + images,
    candidatesTokenCount: candidates,
    totalTokenCount: text + images + candidates,
    promptTokensDetails: [
      { modality: "TEXT", tokenCount: text },
      ...(images > 0 ? [{ modality: "IMAGE" as const, tokenCount: images }] : []),
    ],
    ...(candidates > 0
      ? { candidatesTokensDetails: [{ modality: "IMAGE" as const, tokenCount: candidates }] }
      : {}),
  };
}

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
interface ContentFacts {
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
