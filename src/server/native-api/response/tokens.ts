import type { SizeTier } from "../../../contract/images/image-sizes.ts";

/** What an output image counts, by size. Names with `pro-image` are of the one family, all others of the other. */
const OUTPUT_TOKENS: Record<"pro" | "flash", Record<SizeTier, number>> = {
  pro: { "1K": 1120, "2K": 1120, "4K": 2000 },
  flash: { "1K": 1120, "2K": 1680, "4K": 2520 },
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
 * What a request counts in tokens. Output images have the published count of the model that ran; text is counted as a
 * token for every four bytes of UTF-8, and every input image as one of its family. Nothing is billed by tokens.
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
