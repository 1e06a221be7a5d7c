import type { NativeModel, SharedModel } from "../../../contract/native-api.ts";
import { priceRealtimeImage } from "../../../domain/billing/pricing.ts";
import { batchModelsOf, type GroupEntry, type ModelEntry } from "../../../domain/models.ts";
import { MAX_INPUT_IMAGES, pricedSizes, ratiosOf } from "../../../domain/realtime/models.ts";
import { microsToNumber } from "../../../kernel/money.ts";

const INPUT_TOKENS = 131_072;
const OUTPUT_TOKENS = 32_768;

/** A model as the native API describes it, with what an image costs this group now. */
export function nativeModelView(
  model: ModelEntry,
  group: GroupEntry,
  { rateMultiplier, isPaid, isPlay }: { rateMultiplier: number; isPaid: boolean; isPlay: boolean },
): NativeModel {
  const sizes = pricedSizes(model);
  const images = sizes.map((size) => [
    size,
    microsToNumber(priceRealtimeImage(model, size, group, rateMultiplier) ?? 0),
  ]);
  return {
    name: `models/${model.id}`,
    version: "1",
    displayName: model.id,
    description: "Makes and edits images",
    inputTokenLimit: INPUT_TOKENS,
    outputTokenLimit: OUTPUT_TOKENS,
    supportedGenerationMethods: [
      "generateContent",
      "streamGenerateContent",
      ...(batchModelsOf(group, [model]).length > 0 ? ["batchGenerateContent"] : []),
    ],
    aspectRatios: [...ratiosOf(model)],
    imageSizes: sizes,
    maxInputImages: MAX_INPUT_IMAGES,
    pricing: {
      currency: "usd",
      images: Object.fromEntries(images),
      ...(isPaid ? { paid: true } : {}),
      ...(isPlay ? { play_money: true } : {}),
    },
  };
}

/** A model under one of its names, also with the fields that OpenAI clients read. Its time of creation is not known. */
export function sharedModelView(name: string, native: NativeModel): SharedModel {
  return { id: name, object: "model", created: 0, owned_by: "imgbatch", ...native };
}
