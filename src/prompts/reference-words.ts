/** Problems of reference images, to be put behind the name of the file or the field. */
export const NOT_AN_IMAGE = "must be a PNG, JPEG or WebP image";
export const OTHER_TYPE = `${NOT_AN_IMAGE}; its first bytes show another type`;
export const NOT_BASE64 = "must be standard Base64, padded and without a data: prefix";

export function tooLarge(bytes: number, maxBytes: number): string {
  return `has ${bytes} bytes; at most ${maxBytes} are allowed`;
}

/** The problem of a path that is a URL; null for every other path. */
export function urlProblem(path: string): string | null {
  if (!/^https?:\/\//i.test(path)) return null;
  return `${path} is a URL, and URLs are not supported here; download it first`;
}
