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

/**
 * The image type that the first bytes announce, whatever a header or a file name says.
 * Twelve bytes are enough. Null when it is none of the accepted types.
 */
export function sniffImageType(head: Uint8Array): ImageMimeType | null {
  const at = (offset: number, ...bytes: number[]) => bytes.every((byte, i) => head[offset + i] === byte);
  if (at(0, 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return "image/png";
  if (at(0, 0xff, 0xd8, 0xff)) return "image/jpeg";
  if (at(0, 0x52, 0x49, 0x46, 0x46) && at(8, 0x57, 0x45, 0x42, 0x50)) return "image/webp";
  return null;
}
