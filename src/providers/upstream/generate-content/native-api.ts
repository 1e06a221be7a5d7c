import type { Capabilities } from "../../../domain/ports/image-provider.ts";

/** Requests name no image type: the real vendor refuses the field for it. */
export const NATIVE_TAKES: Capabilities = {
  maxReferences: 14,
  ratios: "any",
  tiers: "any",
};

/** `models/` and the id, unless the id names another collection itself, as `tunedModels/mine` does. */
export function modelPath(model: string): string {
  const path = model.includes("/") ? model : `models/${model}`;
  return path.split("/").map(encodeURIComponent).join("/");
}
