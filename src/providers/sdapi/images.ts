import { z } from "zod";
import type { GeneratedImages } from "../../domain/ports/image-provider.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import { type ImagesJson, refuseMany } from "../upstream/answer-images.ts";
import { ambiguous } from "../upstream/classify.ts";
import { upstreamWords } from "../upstream/words.ts";

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
export function readImages(
  name: string,
  { value, decode }: Pick<ImagesJson, "value" | "decode">,
  seed: number,
): GeneratedImages {
  const { data } = answerSchema.safeParse(value);
  if (data === undefined) throw ambiguous(name, 'HTTP 200 without the list "images"');
  refuseMany(name, data.images.length);
  const info = infoOf(data.info);
  const images = data.images.map(decode);
  if (images.some(({ length }) => length === 0)) throw ambiguous(name, "an image that is not Base64");
  return {
    images,
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
