/** Finish reasons that refuse the content of a request: sent again unchanged, it fails again. */
export const REFUSING_FINISH_REASONS = [
  "SAFETY",
  "IMAGE_SAFETY",
  "PROHIBITED_CONTENT",
  "IMAGE_PROHIBITED_CONTENT",
  "RECITATION",
  "IMAGE_RECITATION",
  "BLOCKLIST",
  "SPII",
  "LANGUAGE",
] as const;
