import { type Base64Rules, isBase64 } from "../../kernel/base64.ts";
import { formatBytes } from "../../kernel/text.ts";
import { imageInMemory, type SentImage, type SentTexts } from "./sent-image.ts";

interface Rules {
  maxBytes: number;
  base64: Base64Rules;
  /** The long texts of the body. */
  sent: SentTexts;
}

/** Returns the image of a Base64 field, or a text that describes the problem. Data URLs are refused. */
export function receiveImage(data: string, { maxBytes, base64, sent }: Rules): SentImage | string {
  const long = sent.get(data);
  const tooLarge = `is larger than ${formatBytes(maxBytes)}`;
  const noBase64 = `must be ${base64 === "strict" ? "strict " : ""}Base64, without a data URL prefix`;
  if ((long?.chars ?? data.length) > Math.ceil(maxBytes / 3) * 4) return tooLarge;
  const content = long?.content ?? decode(data, base64);
  if (content === "no Base64") return noBase64;
  return content === "too large" || content.sizeBytes > maxBytes ? tooLarge : content;
}

function decode(data: string, rules: Base64Rules): SentImage | "no Base64" {
  const bytes = Buffer.from(data, "base64");
  return isBase64(data, bytes, rules) ? imageInMemory(bytes) : "no Base64";
}
