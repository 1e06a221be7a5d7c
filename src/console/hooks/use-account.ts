import { createContext, useContext, useMemo } from "react";
import type { AccountObject } from "../../contract/console-api.ts";
import { DEFAULT_LIMITS, type Limits } from "../../contract/limits.ts";
import type { Data } from "./use-data.ts";

export const AccountContext = createContext<Data<AccountObject> | null>(null);

/** The account of the key, kept up to date; null before it is known. */
export function useAccount(): AccountObject | null {
  return useContext(AccountContext)?.value ?? null;
}

/** The limits of the service; the default ones before they are known. */
export function useLimits(): Limits {
  const limits = JSON.stringify(useAccount()?.limits ?? null);
  return useMemo(() => limitsOf(JSON.parse(limits)), [limits]);
}

function limitsOf(limits: AccountObject["limits"] | null): Limits {
  if (limits === null) return DEFAULT_LIMITS;
  return {
    ...DEFAULT_LIMITS,
    itemsPerBatch: limits.items_per_batch,
    outputImagesPerBatch: limits.output_images_per_batch,
    outputCountPerItem: limits.output_count_per_item,
    promptChars: limits.prompt_chars,
    referenceImageBytes: limits.reference_image_bytes,
    referenceImagesPerBatch: limits.reference_images_per_batch,
    referenceBytesPerBatch: limits.reference_bytes_per_batch,
    createBodyBytes: limits.create_body_bytes,
    zipItems: limits.zip_items,
  };
}
