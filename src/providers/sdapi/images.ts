import { z } from "zod";
import { type GeneratedImages, ProviderError } from "../../domain/ports/image-provider.ts";
import { isBase64 } from "../../kernel/base64.ts";
import { formatBytes, truncateCodePoints } from "../../kernel/text.ts";
import { ambiguous } from "../upstream/classify.ts";
import { upstreamWords } from "../upstream/words.ts";

const MAX_IMAGE_BYTES = 64 * 1024 * 1024;
const MAX_MODEL = 200;

const answerSchema = z.object({ images: z.array(z.string()), info: z.unknown().optional() });
const infoSchema = z.object({
  seed: z.int().min(0).nullish().catch(null),
  sd_model_name: z.string().nullish().catch(null),
  sd_model_hash: z.string().nullish().catch(null),
});

/**
 * Reads an answer of txt2img or img2img of the provider with this name. `seed` counts when the server names none. Throws
 * `ProviderError`.
 */
export function readImages(name: string, answer: unknown, seed: number): GeneratedImages {
  const { data } = answerSchema.safeParse(answer);
  if (data === undefined) throw ambiguous(name, 'HTTP 200 without the list "images"');
  const info = infoOf(data.info);
  return {
    images: data.images.map((text) => decode(name, text)),
    seed: info.seed ?? seed,
    modelVersion: modelOf(info),
  };
}

/** `info` is JSON inside the JSON. Servers that leave it out, or write other text, have made the images even so. */
function infoOf(info: unknown): z.infer<typeof infoSchema> {
  try {
    return infoSchema.parse(JSON.parse(String(info)));
  } catch {
    return {};
  }
}

/** The checkpoint as the web UI shows it: `name [hash]`. */
function modelOf({ sd_model_name: name, sd_model_hash: hash }: z.infer<typeof infoSchema>): string | null {
  const text = [name, hash && `[${hash}]`].filter((part) => part).join(" ");
  return text === "" ? null : truncateCodePoints(upstreamWords(text), MAX_MODEL);
}

/** Decodes an image in Base64, which may be a data URL. */
function decode(name: string, text: string): Buffer {
  const base64 = text.startsWith("data:") ? text.slice(text.indexOf(",") + 1) : text;
  const bytes = Buffer.from(base64, "base64");
  if (!isBase64(base64, bytes, "lenient")) throw ambiguous(name, "an image that is not Base64");
  if (bytes.length <= MAX_IMAGE_BYTES) return bytes;
  const message = `The image is larger than ${formatBytes(MAX_IMAGE_BYTES)}.`;
  throw new ProviderError("INVALID_IMAGE_OUTPUT", message);
}
