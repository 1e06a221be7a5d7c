/** The image types that the service reads and writes, with the file extension of each. */
export const IMAGE_EXTENSIONS = {
  "image/png": "png",
  "image/jpeg": "jpg",
  "image/webp": "webp",
} as const;
export type ImageMimeType = keyof typeof IMAGE_EXTENSIONS;
export const IMAGE_MIME_TYPES = Object.keys(IMAGE_EXTENSIONS) as ImageMimeType[];

export function isImageMimeType(value: string): value is ImageMimeType {
  return Object.hasOwn(IMAGE_EXTENSIONS, value);
}

/** Returns the type that the ending of a file name stands for; null for any other ending. */
export function typeOfFileName(name: string): ImageMimeType | null {
  const ending = /\.([a-z]+)$/i.exec(name)?.[1]?.toLowerCase().replace("jpeg", "jpg");
  return IMAGE_MIME_TYPES.find((type) => IMAGE_EXTENSIONS[type] === ending) ?? null;
}

/** The first bytes of each type: a PNG signature, JPEG markers, `RIFF????WEBP`. Null stands for any byte. */
export const IMAGE_HEADS: Record<ImageMimeType, readonly (number | null)[]> = {
  "image/png": [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a],
  "image/jpeg": [0xff, 0xd8, 0xff],
  "image/webp": [0x52, 0x49, 0x46, 0x46, null, null, null, null, 0x57, 0x45, 0x42, 0x50],
};

/**
 * Returns the image type that the first bytes announce, whatever a header or a file name says. Twelve bytes are enough.
 * Returns null for any type that is not accepted.
 */
export function sniffImageType(head: Uint8Array): ImageMimeType | null {
  const hasHead = (type: ImageMimeType) =>
    IMAGE_HEADS[type].every((byte, i) => byte === null || head[i] === byte);
  return IMAGE_MIME_TYPES.find(hasHead) ?? null;
}
