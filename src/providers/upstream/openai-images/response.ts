import {
  type GeneratedImages,
  type LargeImage,
  ProviderError,
  type UpstreamUsage,
} from "../../../domain/ports/image-provider.ts";
import { multiplyToMicros } from "../../../kernel/money.ts";
import { type ImagesJson, refuseMany } from "../answer-images.ts";
import { ambiguous } from "../classify.ts";
import type { UpstreamHttp } from "../http.ts";
import { fetchImage } from "../image-address.ts";
import { countAt, listAt, textAt, valueAt } from "../read-json.ts";
import { upstreamWords } from "../words.ts";

/**
 * Reads a success of the Images API, and fetches images that it has by address. Throws `ProviderError` for a silent
 * refusal, for an answer without an image, when no address gives an image, and for JSON of another kind.
 */
export async function readImages(
  http: UpstreamHttp,
  { value: answer, ...inJson }: ImagesJson,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<GeneratedImages> {
  const { name } = http;
  if (!Array.isArray(valueAt(answer, "data"))) throw ambiguous(name, "HTTP 200 with other JSON", 200);
  const data = listAt(answer, "data");
  const isRefused = (entry: unknown) => valueAt(entry, "respect_moderation") === false;
  const kept = isRefused(answer) ? [] : data.filter((entry) => !isRefused(entry));
  refuseMany(name, kept.length);
  const images: (Buffer | LargeImage)[] = [];
  const failures: unknown[] = [];
  for (const entry of kept) {
    const [base64, url] = [textAt(entry, "b64_json") ?? textAt(entry, "b64"), textAt(entry, "url")];
    if (base64 !== null) images.push(inJson.decode(base64));
    else if (url !== null) {
      await fetchImage(http, url, headers, signal, inJson).then(
        (image) => images.push(image),
        (error) => failures.push(error),
      );
      signal.throwIfAborted();
    }
  }
  const version = textAt(answer, "model");
  const modelVersion = version === null ? null : upstreamWords(version);
  const facts = { upstreamStatus: 200, modelVersion };
  if (images.length === 0 && failures.length > 0) throw failures[0];
  if (images.length === 0 && (data.some(isRefused) || isRefused(answer))) {
    throw new ProviderError("SAFETY_BLOCKED", `${name} refused the content.`, facts);
  }
  if (images.length === 0) {
    throw new ProviderError("EMPTY_IMAGE_OUTPUT", `${name} made no image (an empty list).`, facts);
  }
  const lost = failures.length === 0 ? [] : [`images that could not be fetched: ${failures.length}`];
  const revised = kept.flatMap((entry) => textAt(entry, "revised_prompt") ?? []);
  const notes = [...new Set(revised)].map((text) => `the prompt was rewritten: ${upstreamWords(text)}`);
  return { images, modelVersion, usage: usageOf(answer), notes: [...notes, ...lost] };
}

function usageOf(answer: unknown): UpstreamUsage | null {
  const usage = {
    inputTokens: countAt(answer, "usage", "input_tokens") ?? countAt(answer, "usage", "prompt_tokens"),
    outputTokens: countAt(answer, "usage", "output_tokens") ?? countAt(answer, "usage", "completion_tokens"),
    costMicroUsd: costOf(valueAt(answer, "usage", "cost")),
  };
  return Object.values(usage).every((each) => each === null) ? null : usage;
}

/** A cost in US dollars, a JSON number, in micro-dollars. */
function costOf(usd: unknown): number | null {
  if (typeof usd !== "number" || !(usd >= 0)) return null;
  const micros = Number.isFinite(usd) ? multiplyToMicros([usd]) : Number.NaN;
  return Number.isSafeInteger(micros) ? micros : null;
}
