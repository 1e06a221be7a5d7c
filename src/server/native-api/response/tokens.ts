import type { SizeTier } from "../../../contract/image-formats.ts";

/** Tokens of an output image, by family of model and size. A name with `pro-image` is of the family `pro`. */
const OUTPUT_TOKENS: Record<"pro" | "flash", Record<SizeTier, number>> = {
  pro: { "512": 1120, "1K": 1120, "2K": 1120, "4K": 2000 },
  flash: { "512": 747, "1K": 1120, "2K": 1680, "4K": 2520 },
};
const INPUT_IMAGE_TOKENS = { pro: 560, flash: 258 };
const BYTES_PER_TEXT_TOKEN = 4;

const familyOf = (model: string) => (model.includes("pro-image") ? "pro" : "flash");

type ModalityTokens = { modality: "TEXT" | "IMAGE"; tokenCount: number };

export type Usage = {
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
