import { formatBytes } from "../../kernel/text.ts";

/** `strict` takes what an encoder writes; `lenient` also the URL alphabet, and no padding. */
export type Base64Rules = "strict" | "lenient";

/** The bytes of an image in Base64, or what is wrong with it: nothing but Base64 is taken, so no data URL either. */
export function decodeImage(data: string, maxBytes: number, rules: Base64Rules): Buffer | string {
  const tooLarge = `is larger than ${formatBytes(maxBytes)}`;
  if (data.length > Math.ceil(maxBytes / 3) * 4) return tooLarge;
  const bytes = Buffer.from(data, "base64");
  // Node skips what is not Base64, so what it made must be compared with what was sent.
  const isWhole = rules === "strict" ? bytes.toString("base64") === data : isLenientBase64(data);
  if (!isWhole) return `must be ${rules === "strict" ? "strict " : ""}Base64, without a data URL prefix`;
  return bytes.length > maxBytes ? tooLarge : bytes;
}

function isLenientBase64(data: string): boolean {
  if (!/^[A-Za-z0-9+/_-]+={0,2}$/.test(data)) return false;
  const bare = data.replace(/=+$/, "");
  return bare.length % 4 !== 1 && (bare.length === data.length || data.length % 4 === 0);
}
