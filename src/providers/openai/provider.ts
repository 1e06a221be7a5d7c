import { IMAGE_EXTENSIONS, tierOf } from "../../contract/image-formats.ts";
import type { EntryOf } from "../../contract/provider-entries.ts";
import type { ImageOptions } from "../../domain/ports/image-provider.ts";
import {
  type Carried,
  type GeneratedImages,
  type ImageRequest,
  type LargeImage,
  ProviderError,
  toldRatio,
  type UpstreamUsage,
} from "../../domain/ports/image-provider.ts";
import { joinTurns } from "../../kernel/text.ts";
import { modelFacts, pixelsOf, presetOf, type TokenCounts, tokenCost } from "../catalogue/catalogue.ts";
import {
  type AdapterDeps,
  credentialHeaders,
  repeatHeader,
  type UpstreamAdapter,
} from "../upstream/adapter.ts";
import { type ImagesJson, refuseMany, wholeWords } from "../upstream/answer-images.ts";
import { ambiguous } from "../upstream/classify.ts";
import {
  countAt,
  listAt,
  costOf as reportedCost,
  textAt,
  upstreamWords,
  valueAt,
} from "../upstream/error-facts.ts";
import { fetchImage } from "../upstream/fetch-image.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { dataUrlOf, formBody, jsonBody, type RequestBody } from "../upstream/request-body.ts";

/** The most references of one edit, as OpenAI documents it. */
export const MAX_REFERENCES = 16;

type Entry = EntryOf<"openai">;
/** The keys of an entry that decide the fields of a request. `preset`: the vendor's, if it is known. */
type FieldRules = Pick<Entry, "sizeAs" | "resolution" | "responseFormat" | "extra" | "preset">;
type Fields = Record<string, unknown>;

/** The request for an image: a generation, or with references an edit. */
function imagesRequest(entry: Entry, request: ImageRequest): { path: string; body: RequestBody } {
  const { path, editPath, edits } = entry;
  const { references, mask } = request;
  const fields = imageFields(entry, request);
  if (references.length === 0) return { path, body: jsonBody(fields) };
  if (edits === "input_references") {
    const input_references = references.map((image) => ({
      type: "image_url",
      image_url: { url: dataUrlOf(image) },
    }));
    return { path, body: jsonBody({ ...fields, input_references }) };
  }
  if (edits === "json") {
    const images = references.map((image) => ({ type: "image_url", url: dataUrlOf(image) }));
    return {
      path: editPath,
      body: jsonBody({ ...fields, ...(images[1] ? { images } : { image: images[0] }) }),
    };
  }
  // One file goes by the plain name, several as a list: all servers that were looked at read both.
  const field = references.length === 1 ? "image" : "image[]";
  const files = references.map((image, i) => ({
    field,
    fileName: `reference-${i + 1}.${IMAGE_EXTENSIONS[image.mimeType]}`,
    content: image,
  }));
  if (mask) files.push({ field: "mask", fileName: "mask.png", content: mask });
  return { path: editPath, body: formBody(asTexts(fields), files) };
}

/** The fields of a request for an image, without its references. */
export function imageFields(entry: FieldRules, request: ImageRequest): Fields {
  const { model, prompt, earlier = "", options } = request;
  const tier = tierOf(options.size);
  const { formats, defaultQuality: ofVendor } = modelFacts(entry.preset, model) ?? {};
  const { defaultQuality = ofVendor } = request;
  const { responseFormat, resolution } = entry;
  const { verbatim } = request;
  // Without a type, some servers make a JPEG, which has no transparency.
  const hasType = formats !== undefined || options.background === "transparent";
  return {
    ...sizeFields(entry, request),
    // Models that can be asked for a type refuse `response_format`: they always return Base64.
    ...(hasType ? { output_format: IMAGE_EXTENSIONS[options.mimeType].replace("jpg", "jpeg") } : {}),
    ...(formats || responseFormat === "omit" ? {} : { response_format: responseFormat }),
    // The price depends on it.
    ...(defaultQuality !== undefined && { quality: defaultQuality }),
    ...(verbatim?.api === "openai" ? verbatim.fields : {}),
    ...entry.extra,
    ...(resolution !== null &&
      tier !== "1K" && { resolution: resolution === "lower" ? tier.toLowerCase() : tier }),
    ...optionFields(options),
    model,
    prompt: joinTurns(earlier, prompt),
  };
}

function optionFields({ quality, background, seed, negativePrompt }: ImageOptions): Fields {
  const fields = Object.entries({ quality, background, seed, negative_prompt: negativePrompt });
  return Object.fromEntries(fields.filter(([, value]) => value !== null));
}

/** Pixels are sent for an edit that keeps the ratio of its reference, too: without them many servers make a square. */
function sizeFields({ sizeAs }: FieldRules, request: ImageRequest): Fields {
  const ratio = toldRatio(request);
  if (sizeAs === "aspect_ratio") return ratio === null ? {} : { aspect_ratio: ratio };
  const { widthPx: width, heightPx: height } = request.pixels;
  return sizeAs === "size" ? { size: `${width}x${height}` } : { width, height };
}

/** A form has texts only. A null is left out. */
function asTexts(fields: Fields): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}

/**
 * Reads a success of the Images API, and fetches images that it has by address. Throws `ProviderError` for a silent
 * refusal, for an answer without an image, when no address gives an image, and for JSON of another kind.
 */
export async function readImages(
  http: UpstreamHttp,
  { value: answer, ...inJson }: ImagesJson,
  headers: Readonly<Record<string, string>>,
  { costOf, signal }: { costOf: (tokens: TokenCounts) => number | null; signal: AbortSignal },
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
  const usage = usageOf(answer, costOf);
  const facts = { upstreamStatus: 200, modelVersion, usage };
  if (images.length === 0 && failures.length > 0) throw failures[0];
  if (images.length === 0 && (data.some(isRefused) || isRefused(answer))) {
    throw new ProviderError("SAFETY_BLOCKED", `${name} refused the content.`, facts);
  }
  if (images.length === 0) {
    throw new ProviderError("EMPTY_IMAGE_OUTPUT", `${name} made no image (an empty list).`, facts);
  }
  const lost = failures.length === 0 ? [] : [`images that could not be fetched: ${failures.length}`];
  const revised = kept.flatMap((entry) => textAt(entry, "revised_prompt") ?? []);
  const words = kept.map((entry) => ({ revised_prompt: textAt(entry, "revised_prompt") ?? undefined }));
  const fields = wholeWords({ data: words, usage: valueAt(answer, "usage") }, inJson.decode);
  const notes = [...new Set(revised)].map((text) => `the prompt was rewritten: ${upstreamWords(text)}`);
  const said = { answer: { api: "openai", fields } } as const;
  return { images, modelVersion, usage, notes: [...notes, ...lost], ...said };
}

function usageOf(answer: unknown, costOf: (tokens: TokenCounts) => number | null): UpstreamUsage | null {
  const count = (...path: string[]) => countAt(answer, "usage", ...path);
  const tokens = {
    input: count("input_tokens") ?? count("prompt_tokens"),
    imageInput: count("input_tokens_details", "image_tokens"),
    output: count("output_tokens") ?? count("completion_tokens"),
    textOutput: count("output_tokens_details", "text_tokens"),
  };
  const usage = {
    inputTokens: tokens.input,
    outputTokens: tokens.output,
    costMicroUsd:
      reportedCost(valueAt(answer, "usage", "cost")) ??
      reportedCost(valueAt(answer, "usage", "cost_in_usd_ticks"), 1 / TICKS) ??
      costOf(tokens),
  };
  return Object.values(usage).every((each) => each === null) ? null : usage;
}

/** The ticks of xAI that are a US dollar. */
const TICKS = 1e10;

/** Talks to OpenAI Images, and to the services that speak it. */
export function createOpenaiAdapter(configured: EntryOf<"openai">, deps: AdapterDeps): UpstreamAdapter {
  const entry = { ...configured, preset: presetOf(configured)?.name ?? null };
  const { name, edits } = entry;
  const http = new UpstreamHttp(entry, deps);
  const headers = credentialHeaders(configured, deps);
  const maxReferences = edits === "none" ? 0 : MAX_REFERENCES;
  return {
    address: http.baseUrl,
    takes: {
      maxReferences,
      ratios: "any",
      // A ratio alone says nothing about the size.
      tiers: entry.sizeAs === "aspect_ratio" && entry.resolution === null ? ["1K"] : "any",
      ...(entry.sizeAs !== "aspect_ratio" && { pixelsOf: pixelsOf(entry) }),
      options: carriedBy(entry),
      api: "openai",
    },
    async generate(request, signal, onSent, onAnswered) {
      if (request.references.length > maxReferences) {
        const most = maxReferences === 0 ? "no" : `at most ${maxReferences}`;
        throw new ProviderError("INVALID_ARGUMENT", `${name} takes ${most} reference images.`);
      }
      const { path, body } = imagesRequest(entry, request);
      const asked = joinTurns(request.earlier ?? "", request.prompt);
      const repeatable = { ...headers, ...repeatHeader(configured, request) };
      const call = { method: "POST", path, headers: repeatable, body, asked } as const;
      const seed = request.options.seed;
      const costOf = (tokens: TokenCounts) => tokenCost(configured, request, tokens);
      return http.images(call, signal, { onSent, onAnswered }, async (answer) => {
        const made = await readImages(http, answer, headers, { costOf, signal });
        return seed === null ? made : { ...made, seed };
      });
    },
    async probe(signal) {
      await http.json({ method: "GET", path: "/models", headers }, signal);
    },
    close: () => http.close(),
  };
}

/** The options that a server of this kind has fields for. A mask needs a form. */
function carriedBy({ edits, takes }: Pick<Entry, "edits" | "takes">): Carried[] {
  const more = takes.map((field) => (field === "seed" ? "seed" : "negativePrompt"));
  return ["quality", "background", ...more, ...(edits === "multipart" ? (["mask"] as const) : [])];
}
