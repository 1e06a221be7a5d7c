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
    "displayName",
    "inputConfig",
    "fileName",
  ].map((name) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), name]),
);

/**
 * The value with its snake_case fields in lowerCamelCase, in objects up to `levels` deep: by default all of them. Where a
 * field has both spellings, the one in lowerCamelCase counts.
 */
export function camelKeys(value: unknown, levels = Number.POSITIVE_INFINITY): unknown {
  if (levels === 0) return value;
  if (Array.isArray(value)) return value.map((inner) => camelKeys(inner, levels));
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value);
  return Object.fromEntries(
    entries
      .filter(([key]) => !(Object.hasOwn(CAMEL, key) && Object.hasOwn(value, CAMEL[key] ?? "")))
      .map(([key, inner]) => [Object.hasOwn(CAMEL, key) ? CAMEL[key] : key, camelKeys(inner, levels - 1)]),
  );
}
