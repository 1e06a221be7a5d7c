import type { EntryOf } from "../../contract/provider-entries.ts";
import { PATHS } from "../../contract/routes.ts";
import { REFUSING_FINISH_REASONS } from "../../contract/statuses.ts";
import {
  type Capabilities,
  type GeneratedImages,
  type ImageRequest,
  ProviderError,
  type UpstreamUsage,
} from "../../domain/ports/image-provider.ts";
import { unlessAborted } from "../../kernel/signals.ts";
import { joinTurns } from "../../kernel/text.ts";
import { modelFacts, presetOf } from "../catalogue/catalogue.ts";
import {
  type AdapterDeps,
  credentialHeaders,
  repeatHeader,
  type UpstreamAdapter,
} from "../upstream/adapter.ts";
import { type ImagesJson, refuseMany } from "../upstream/answer-images.ts";
import { ambiguous } from "../upstream/classify.ts";
import { countAt, listAt, textAt, upstreamWords, valueAt } from "../upstream/error-facts.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { jsonBody, ReferenceText } from "../upstream/request-body.ts";

/** Requests name no image type: the real vendor refuses the field for it. */
export const NATIVE_TAKES: Capabilities = {
  maxReferences: 14,
  ratios: "any",
  tiers: "any",
  options: ["seed"],
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
  return async ({ model, asked, outputIndex }, signal) => {
    if (asked?.seed != null) return true;
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

/** The body of `generateContent`. The references in it are read when it is sent. `preset`: the vendor's, if it is known. `hasSeed`: see `seedRule`. */
export function generateContentBody(request: ImageRequest, preset: string | null, hasSeed: boolean): object {
  const { model, prompt, earlier, references, ratio, keepsRatio, tier, seed } = request;
  const hasOneSize = modelFacts(preset, model)?.sizes.length === 1;
  const images = references.map((image) => ({
    inlineData: { mimeType: image.mimeType, data: new ReferenceText(image) },
  }));
  return {
    contents: [
      ...(earlier ? [{ role: "user", parts: [{ text: earlier }] }] : []),
      { role: "user", parts: [{ text: prompt }, ...images] },
    ],
    generationConfig: {
      responseModalities: ["TEXT", "IMAGE"],
      imageConfig: {
        // Without one the vendor keeps that of the first reference.
        ...(keepsRatio ? {} : { aspectRatio: ratio }),
        ...(hasOneSize ? {} : { imageSize: tier }),
      },
      ...(hasSeed ? { seed } : {}),
    },
  };
}

const REFUSING: ReadonlySet<string> = new Set(REFUSING_FINISH_REASONS);
/** An answer of this protocol has at least one of these. */
const FIELDS = ["candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"];

/**
 * Reads a success of `generateContent`. Every image counts but the interim ones of a model that thinks. Throws
 * `ProviderError` for a refusal, for an answer without an image, and for JSON of another kind.
 */
export function readContent(name: string, answer: unknown, decode: ImagesJson["decode"]): GeneratedImages {
  if (!FIELDS.some((field) => valueAt(answer, field) !== undefined)) {
    throw ambiguous(name, "HTTP 200 with other JSON", 200);
  }
  const candidates = listAt(answer, "candidates");
  const parts = candidates
    .flatMap((candidate) => listAt(candidate, "content", "parts"))
    .filter((part) => valueAt(part, "thought") !== true);
  const texts = parts
    .map((part) => textAt(part, "inlineData", "data") ?? textAt(part, "inline_data", "data"))
    .filter((data) => data !== null);
  refuseMany(name, texts.length);
  const images = texts.map(decode);
  const version = textAt(answer, "modelVersion");
  const modelVersion = version === null ? null : upstreamWords(version);
  if (images.length > 0) return { images, modelVersion, usage: usageOf(answer) };

  const blocked = textAt(answer, "promptFeedback", "blockReason");
  const reasons = candidates.map((candidate) => textAt(candidate, "finishReason"));
  const refusing = reasons.find((reason) => reason !== null && REFUSING.has(reason)) ?? null;
  const told =
    textAt(answer, "promptFeedback", "blockReasonMessage") ??
    candidates.map((candidate) => textAt(candidate, "finishMessage")).find((message) => message !== null) ??
    parts.map((part) => textAt(part, "text")).find((text) => text !== null) ??
    "";
  const reason = blocked ?? refusing;
  const facts = { upstreamStatus: 200, modelVersion };
  if (reason !== null) {
    const words = upstreamWords(told) || `${name} refused the content (${upstreamWords(reason)}).`;
    throw new ProviderError("SAFETY_BLOCKED", words, facts);
  }
  const finish = reasons.find((each) => each !== null) ?? "no candidate";
  // A model that stops with a text alone refuses in words.
  const words = finish === "STOP" ? upstreamWords(told) : "";
  const message = `${name} made no image (${upstreamWords(finish)})${words && `: ${words}`}`;
  throw new ProviderError("EMPTY_IMAGE_OUTPUT", message.replace(/(?<![.!?…])$/, "."), facts);
}

function usageOf(answer: unknown): UpstreamUsage | null {
  const count = (field: string) => countAt(answer, "usageMetadata", field);
  const [input, made, thought] = [
    count("promptTokenCount"),
    count("candidatesTokenCount"),
    count("thoughtsTokenCount"),
  ];
  if (input === null && made === null && thought === null) return null;
  const outputTokens = made === null && thought === null ? null : (made ?? 0) + (thought ?? 0);
  return { inputTokens: input, outputTokens, costMicroUsd: null };
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
      const asked = joinTurns(request.earlier ?? "", request.prompt);
      const repeatable = { ...headers, ...repeatHeader(entry, request) };
      const call = { method: "POST", path, headers: repeatable, body, asked } as const;
      return http.images(call, signal, { onSent, onAnswered }, ({ value, decode }) => ({
        ...readContent(name, value, decode),
        seed: hasSeed ? request.seed : null,
      }));
    },
    async probe(signal) {
      await http.json({ method: "GET", path: `/${apiVersion}/models?pageSize=1`, headers }, signal);
    },
    close: () => http.close(),
  };
}
