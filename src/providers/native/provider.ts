import { tierOf } from "../../contract/image-formats.ts";
import type { EntryOf } from "../../contract/provider-entries.ts";
import { PATHS } from "../../contract/routes.ts";
import { REFUSING_FINISH_REASONS } from "../../contract/statuses.ts";
import {
  type Capabilities,
  DECISIVE_FIELDS,
  type GeneratedImages,
  type ImageRequest,
  ProviderError,
  toldRatio,
  type UpstreamUsage,
  type VerbatimAnswer,
} from "../../domain/ports/image-provider.ts";
import { fieldsOf } from "../../kernel/json.ts";
import { unlessAborted } from "../../kernel/signals.ts";
import { modelFacts, presetOf, type TokenCounts, tokenCost } from "../catalogue/catalogue.ts";
import {
  type AdapterDeps,
  credentialHeaders,
  repeatHeader,
  type UpstreamAdapter,
} from "../upstream/adapter.ts";
import { type ImagesJson, refuseMany, wholeWords } from "../upstream/answer-images.ts";
import { ambiguous } from "../upstream/classify.ts";
import { countAt, listAt, ownersWords, textAt, upstreamWords, valueAt } from "../upstream/error-facts.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { jsonBody, ReferenceText } from "../upstream/request-body.ts";

/** Requests name no image type: the real vendor refuses the field for it. */
export const NATIVE_TAKES: Capabilities = {
  maxReferences: 14,
  ratios: "any",
  tiers: "any",
  options: ["seed", ...DECISIVE_FIELDS],
  api: "native",
};

/** `models/` and the id, unless the id names another collection itself, as `tunedModels/mine` does. */
export function modelPath(model: string): string {
  const path = model.includes("/") ? model : `models/${model}`;
  return path.split("/").map(encodeURIComponent).join("/");
}

/** How long another imgbatch may take to list its models, and how long its list is used. */
const LIST_MS = 5000;
const LIST_EVERY_MS = 60_000;

/**
 * Returns whether a request has a seed: one that was asked for, or else where the model is known to take one. Of another imgbatch,
 * its list of models says so. It is read only for further outputs of an item, which would be drawn like the first one without.
 */
export function seedRule(
  http: UpstreamHttp,
  entry: EntryOf<"native" | "native-batch">,
  deps: AdapterDeps,
): (request: ImageRequest, signal: AbortSignal) => Promise<boolean> {
  const { name, apiKeyEnv } = entry;
  const headers = credentialHeaders({ name, apiKeyEnv }, deps);
  const call = { method: "GET", path: PATHS.batchModels, headers } as const;
  const preset = presetOf(entry)?.name ?? null;
  let list: Promise<unknown> = Promise.resolve(null);
  let endsMs = Number.NEGATIVE_INFINITY;
  return async ({ model, options, outputIndex }, signal) => {
    if (options.seed !== null) return true;
    if (preset !== null) return modelFacts(preset, model)?.seed === true;
    if (outputIndex === 0) return false;
    const nowMs = deps.clock.monotonicMs();
    if (nowMs >= endsMs) {
      endsMs = nowMs + LIST_EVERY_MS;
      list = http.json(call, AbortSignal.timeout(LIST_MS)).catch(() => null);
    }
    const models = listAt(await unlessAborted(list, signal), "data");
    return models.some((each) => valueAt(each, "id") === model && valueAt(each, "options", "seed") === true);
  };
}

/**
 * The body of `generateContent`. The references in it are read when it is sent. `preset`: the vendor's, if it is known.
 * `hasSeed`: see `seedRule`. What a caller of the same API has said besides is in it as it came.
 */
export function generateContentBody(request: ImageRequest, preset: string | null, hasSeed: boolean): object {
  const { model, prompt, earlier, references, options, seed, verbatim } = request;
  const ratio = toldRatio(request);
  const hasOneSize = modelFacts(preset, model)?.sizes.length === 1;
  const images = references.map((image) => ({
    inlineData: { mimeType: image.mimeType, data: new ReferenceText(image) },
  }));
  const { contents, generationConfig, ...fields } = verbatim?.api === "native" ? verbatim.fields : {};
  const config = fieldsOf(generationConfig) ?? {};
  return {
    ...fields,
    contents: Array.isArray(contents)
      ? contents.map((message) => withReferences(message, images))
      : [
          ...(earlier ? [{ role: "user", parts: [{ text: earlier }] }] : []),
          { role: "user", parts: [{ text: prompt }, ...images] },
        ],
    generationConfig: {
      responseModalities: ["TEXT", "IMAGE"],
      ...config,
      imageConfig: {
        ...fieldsOf(config.imageConfig),
        // Without one the vendor keeps that of the first reference.
        ...(ratio === null ? {} : { aspectRatio: ratio }),
        ...(hasOneSize ? {} : { imageSize: tierOf(options.size) }),
      },
      ...(hasSeed ? { seed } : {}),
    },
  };
}

/** A message of `VerbatimRequest`, with its references in their places. */
function withReferences(message: unknown, images: readonly object[]): object {
  const parts = listAt(message, "parts").map((part) => {
    const { reference, ...rest } = fieldsOf(part) ?? {};
    return typeof reference === "number" ? { ...images[reference], ...rest } : rest;
  });
  return { ...fieldsOf(message), parts };
}

const REFUSING: ReadonlySet<string> = new Set(REFUSING_FINISH_REASONS);
/** An answer of this protocol has at least one of these. */
const FIELDS = ["candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"];

/** The price of counted tokens in micro-dollars; null when it is not known. */
type CostOf = (tokens: TokenCounts) => number | null;

/**
 * Reads a success of `generateContent`. Every image counts but the interim ones of a model that thinks. Throws
 * `ProviderError` for a refusal, for an answer without an image, and for JSON of another kind.
 */
export function readContent(
  name: string,
  answer: unknown,
  decode: ImagesJson["decode"],
  costOf: CostOf,
): GeneratedImages {
  if (!FIELDS.some((field) => valueAt(answer, field) !== undefined)) {
    throw ambiguous(name, "HTTP 200 with other JSON", 200);
  }
  const candidates = listAt(answer, "candidates");
  const parts = candidates
    .flatMap((candidate) => listAt(candidate, "content", "parts"))
    .filter((part) => valueAt(part, "thought") !== true);
  const texts = parts.map(imageTextOf).filter((data) => data !== null);
  refuseMany(name, texts.length);
  const images = texts.map(decode);
  const version = textAt(answer, "modelVersion");
  const modelVersion = version === null ? null : upstreamWords(version);
  const said = verbatimAnswer(answer, decode);
  const usage = usageOf(answer, costOf);
  if (images.length > 0) return { images, modelVersion, usage, answer: said };

  const blocked = textAt(answer, "promptFeedback", "blockReason");
  const reasons = candidates.map((candidate) => textAt(candidate, "finishReason"));
  const refusing = reasons.find((reason) => reason !== null && REFUSING.has(reason)) ?? null;
  const told = [
    textAt(answer, "promptFeedback", "blockReasonMessage"),
    ...candidates.map((candidate) => textAt(candidate, "finishMessage")),
    ...parts.map((part) => textAt(part, "text")),
  ].flatMap((text) => text ?? []);
  const words = upstreamWords(ownersWords(told.join("\n")));
  const facts = { upstreamStatus: 200, modelVersion, answer: said, usage };
  if (blocked !== null) {
    const message = words || `${name} refused the prompt (${upstreamWords(blocked)}).`;
    throw new ProviderError("SAFETY_BLOCKED", message, facts);
  }
  const finish = refusing ?? reasons.find((each) => each !== null) ?? "no candidate";
  const what = refusing === null ? "made no image" : "refused to show what it made";
  const message = `${name} ${what} (${upstreamWords(finish)})${words && `: ${words}`}`;
  const code = refusing === null ? "EMPTY_IMAGE_OUTPUT" : "SAFETY_BLOCKED";
  throw new ProviderError(code, message.replace(/(?<![.!?…])$/, "."), facts);
}

const imageTextOf = (part: unknown) =>
  textAt(part, "inlineData", "data") ?? textAt(part, "inline_data", "data");

/** The fields of an answer that say something beside its images. */
const SAID = ["promptFeedback", "usageMetadata"];

/** Returns what an answer says beside its images. Interim images of a model that thinks are left out. */
function verbatimAnswer(answer: unknown, decode: ImagesJson["decode"]): VerbatimAnswer {
  let image = 0;
  const partOf = (part: unknown) => {
    const { inlineData: _, inline_data: __, ...rest } = fieldsOf(part) ?? {};
    if (imageTextOf(part) === null) return [rest];
    return rest.thought === true ? [] : [{ image: image++, ...rest }];
  };
  const candidates = listAt(answer, "candidates").map((candidate) => {
    const content = fieldsOf(valueAt(candidate, "content"));
    const parts = listAt(content, "parts").flatMap(partOf);
    return { ...fieldsOf(candidate), ...(content && { content: { ...content, parts } }) };
  });
  const said = SAID.map((name) => [name, valueAt(answer, name)]).filter(([, value]) => value !== undefined);
  const fields = { ...(candidates.length > 0 && { candidates }), ...Object.fromEntries(said) };
  return { api: "native", fields: wholeWords(fields, decode) };
}

function usageOf(answer: unknown, costOf: CostOf): UpstreamUsage | null {
  const count = (field: string) => countAt(answer, "usageMetadata", field);
  const [input, made, thought] = [
    count("promptTokenCount"),
    count("candidatesTokenCount"),
    count("thoughtsTokenCount"),
  ];
  if (input === null && made === null && thought === null) return null;
  const outputTokens = made === null && thought === null ? null : (made ?? 0) + (thought ?? 0);
  const tokens = {
    input,
    imageInput: tokensOf(answer, "promptTokensDetails", "IMAGE"),
    output: outputTokens,
    textOutput: (tokensOf(answer, "candidatesTokensDetails", "TEXT") ?? 0) + (thought ?? 0),
  };
  return { inputTokens: input, outputTokens, costMicroUsd: costOf(tokens) };
}

/** Returns how many of the tokens are of a kind; null when the kinds are not told apart. */
function tokensOf(answer: unknown, field: string, kind: "TEXT" | "IMAGE"): number | null {
  const details = listAt(answer, "usageMetadata", field);
  if (details.length === 0) return null;
  const ofKind = details.filter((detail) => textAt(detail, "modality") === kind);
  return ofKind.reduce<number>((sum, detail) => sum + (countAt(detail, "tokenCount") ?? 0), 0);
}

/** Talks to the vendor's own `generateContent`, or to another imgbatch. */
export function createNativeAdapter(entry: EntryOf<"native">, deps: AdapterDeps): UpstreamAdapter {
  const { name, apiVersion } = entry;
  const http = new UpstreamHttp(entry, deps);
  const headers = credentialHeaders(entry, deps);
  const preset = presetOf(entry)?.name ?? null;
  const takesSeed = seedRule(http, entry, deps);
  return {
    address: `${http.baseUrl}/${apiVersion}`,
    takes: NATIVE_TAKES,
    async generate(request, signal, onSent, onAnswered) {
      const path = `/${apiVersion}/${modelPath(request.model)}:generateContent`;
      const hasSeed = await takesSeed(request, signal);
      const body = jsonBody(generateContentBody(request, preset, hasSeed));
      const { earlier = "", prompt, verbatim } = request;
      const asked = [earlier, prompt, JSON.stringify(verbatim?.fields ?? "")].join("\n");
      const repeatable = { ...headers, ...repeatHeader(entry, request) };
      const call = { method: "POST", path, headers: repeatable, body, asked } as const;
      return http.images(call, signal, { onSent, onAnswered }, ({ value, decode }) => ({
        ...readContent(name, value, decode, (tokens) => tokenCost(entry, request, tokens)),
        seed: hasSeed ? request.seed : null,
      }));
    },
    async probe(signal) {
      await http.json({ method: "GET", path: `/${apiVersion}/models?pageSize=1`, headers }, signal);
    },
    close: () => http.close(),
  };
}
