/** The fields that have a spelling with underscores, too. */
const CAMEL = Object.fromEntries(
  [
    "inlineData",
    "mimeType",
    "displayName",
    "sizeBytes",
    "fileData",
    "fileUri",
    "generationConfig",
    "responseModalities",
    "responseMimeType",
    "imageConfig",
    "aspectRatio",
    "imageSize",
    "outputMimeType",
    "imageOutputOptions",
  ].map((name) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), name]),
);

/**
 * The value with its snake_case fields in lowerCamelCase, at every level. Where a field has both spellings, the one in
 * lowerCamelCase counts.
 */
export function camelKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camelKeys);
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value);
  return Object.fromEntries(
    entries
      .filter(([key]) => !(Object.hasOwn(CAMEL, key) && Object.hasOwn(value, CAMEL[key] ?? "")))
      .map(([key, inner]) => [Object.hasOwn(CAMEL, key) ? CAMEL[key] : key, camelKeys(inner)]),
  );
}
