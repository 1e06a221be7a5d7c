import type { RatioSet, SizeTier } from "../contract/image-formats.ts";
import { referenceLimitByName } from "../contract/text-rules.ts";

/** A model as the operator configures it. */
export interface ModelEntry {
  id: string;
  /** Only models of the family `native` can be used in batches. */
  family: string;
  batch: boolean;
  realtime: boolean;
  ratios: RatioSet;
  sizes: readonly SizeTier[];
  /** US dollars per image by tier. Without a price at 1K a model has no batch price. */
  prices: Readonly<Partial<Record<SizeTier, number>>>;
  maxReferenceImages?: number | undefined;
  /** The model that providers run in its place. Left out: the model itself. */
  mapsTo?: string | undefined;
}

/** A key belongs to a group. The group decides which models the key may use, and their prices. */
export interface GroupEntry {
  name: string;
  platform: string;
  allowBatchImages: boolean;
  /** Model ids, or `*` for all. */
  models: readonly string[];
  rateMultiplier: number;
  batchDiscount: number;
  holdMultiplier: number;
}

export function groupHasModel(group: GroupEntry, model: string): boolean {
  return group.models.includes("*") || group.models.includes(model);
}

/** The models that a key of this group can name in a batch request. */
export function batchModelsOf(group: GroupEntry, models: readonly ModelEntry[]): ModelEntry[] {
  return models.filter((m) => m.family === "native" && m.batch && groupHasModel(group, m.id));
}

/** The most reference images that one item of a batch may have. */
export function referenceLimit(model: ModelEntry): number {
  return model.maxReferenceImages ?? referenceLimitByName(model.id);
}

/** The model that providers run for a requested model id: its `mapsTo`, or the id itself, also for an unknown model. */
export function executedModel(models: readonly ModelEntry[], modelId: string): string {
  return models.find(({ id }) => id === modelId)?.mapsTo ?? modelId;
}
