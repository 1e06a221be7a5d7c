import { executedModel, type ModelEntry } from "./models.ts";
import type { ImageProvider } from "./ports/image-provider.ts";

/** The provider that makes images for a model now. */
export interface Offer<P extends Pick<ImageProvider, "name"> = ImageProvider> {
  provider: P;
  /** The model that the provider is asked to run. Prices and limits stay those of the requested model. */
  executedModel: string;
  /** The operator's factor on the provider's price. */
  rateMultiplier: number;
}

/**
 * Returns the function that finds the offer for a requested model id: the first provider that serves the executed
 * model, or null when no provider does. A provider without a rate multiplier has the factor 1.
 */
export function offersOf<P extends Pick<ImageProvider, "name" | "serves">>(
  providers: readonly P[],
  models: readonly ModelEntry[],
  rateMultipliers: ReadonlyMap<string, number> = new Map(),
): (modelId: string) => Offer<P> | null {
  return (modelId) => {
    const executed = executedModel(models, modelId);
    const provider = providers.find((candidate) => candidate.serves(executed));
    if (!provider) return null;
    return {
      provider,
      executedModel: executed,
      rateMultiplier: rateMultipliers.get(provider.name) ?? 1,
    };
  };
}
