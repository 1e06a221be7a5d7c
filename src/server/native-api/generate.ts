import type { Request } from "express";
import { ImgbatchError, nativeErrorBody, type ServiceErrorCode } from "../../contract/errors.ts";
import { type ImageMimeType, type ImageSize, type SizeTier, tierOf } from "../../contract/image-formats.ts";
import type { Limits } from "../../contract/limits.ts";
import { type NativeBody, nativeSchemas, SIGN_TEXT } from "../../contract/native-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { contentFingerprint } from "../../domain/checked-content.ts";
import { inputImageLimit, MAX_INPUT_IMAGES, type UnmetNeed } from "../../domain/models.ts";
import type { UpstreamUsage, VerbatimAnswer } from "../../domain/ports/image-provider.ts";
import type { GeneratedContent } from "../../domain/realtime/realtime.ts";
import { fieldsOf } from "../../kernel/json.ts";
import { joinTurns } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { answerOnce, answerStream, type Framing, realtimeHandler } from "../http/answer.ts";
import { readQuery } from "../http/parameters.ts";
import type { Operation } from "../operation.ts";
import { withRealtimeBody } from "../request-body/json-body.ts";
import { type BodyFormat, type Shape, shapeOf } from "../request-body/json-reader.ts";
import { checkContent } from "./check-content.ts";
import { findModel } from "./models.ts";

/** Tokens of an output image, by family of model and size. A name with `pro-image` is of the family `pro`. */
const OUTPUT_TOKENS: Record<"pro" | "flash", Record<SizeTier, number>> = {
  pro: { "512": 1120, "1K": 1120, "2K": 1120, "4K": 2000 },
  flash: { "512": 747, "1K": 1120, "2K": 1680, "4K": 2520 },
};
const INPUT_IMAGE_TOKENS = { pro: 560, flash: 258 };
const BYTES_PER_TEXT_TOKEN = 4;

export const textTokens = (text: string) => Math.ceil(Buffer.byteLength(text) / BYTES_PER_TEXT_TOKEN);

const familyOf = (model: string) => (model.includes("pro-image") ? "pro" : "flash");

type ModalityTokens = { modality: "TEXT" | "IMAGE"; tokenCount: number };

type Usage = {
  promptTokenCount: number;
  candidatesTokenCount: number;
  totalTokenCount: number;
  promptTokensDetails: ModalityTokens[];
  candidatesTokensDetails?: ModalityTokens[];
};

/**
 * The tokens of a request. An output image has the published count of the model that ran; text has a token for every
 * four bytes of UTF-8; an input image has the count of its family. Nothing is billed by tokens.
 */
export function usageOf(facts: {
  model: string;
  prompt: string;
  inputImages: number;
  size: ImageSize;
  outputImages: number;
}): Usage {
  const family = familyOf(facts.model);
  const text = textTokens(facts.prompt);
  const images = facts.inputImages * INPUT_IMAGE_TOKENS[family];
  const candidates = facts.outputImages * OUTPUT_TOKENS[family][tierOf(facts.size)];
  return {
    promptTokenCount: text + images,
    candidatesTokenCount: candidates,
    totalTokenCount: text + images + candidates,
    promptTokensDetails: [
      { modality: "TEXT", tokenCount: text },
      ...(images > 0 ? [{ modality: "IMAGE" as const, tokenCount: images }] : []),
    ],
    ...(candidates > 0
      ? { candidatesTokensDetails: [{ modality: "IMAGE" as const, tokenCount: candidates }] }
      : {}),
  };
}

/** The response of the real-time API. */
function contentView(content: GeneratedContent): NativeBody<"GenerateContentAnswer"> {
  const { refusal, failure, answer, modelVersion, id } = content;
  const images = content.images.map(({ image, facts: { mimeType } }) => ({
    mimeType,
    data: image.toString("base64"),
  }));
  const usageMetadata = usageOfContent(content);
  return contentBody({ id, usageMetadata, modelVersion, images, refusal, failure, answer });
}

type NativeUsage = NonNullable<NativeBody<"GenerateContentAnswer">["usageMetadata"]>;

/** Returns the usage of a request and its images; undefined where nobody has counted. */
export function usageOfContent(content: GeneratedContent): NativeUsage | undefined {
  const { asked, executed, answer, usage, isDrawn, images } = content;
  const { prompt, earlier, options } = asked;
  const drawn = {
    model: executed,
    prompt: joinTurns(earlier, prompt),
    inputImages: asked.images.length,
    size: options.size,
    outputImages: images.length,
  };
  return usageMetadataOf(answer, usage, isDrawn ? drawn : null);
}

/** Returns the usage as the upstream has it, or of a drawing our own; undefined where nobody has counted. */
export function usageMetadataOf(
  answer: VerbatimAnswer | null,
  usage: UpstreamUsage | null,
  drawn: Parameters<typeof usageOf>[0] | null,
): NativeUsage | undefined {
  const own = answer?.api === "native" ? fieldsOf(answer.fields.usageMetadata) : null;
  if (own !== null) return own;
  const { inputTokens, outputTokens } = usage ?? {};
  if (inputTokens == null && outputTokens == null) return drawn === null ? undefined : usageOf(drawn);
  return {
    promptTokenCount: inputTokens ?? 0,
    candidatesTokenCount: outputTokens ?? 0,
    totalTokenCount: (inputTokens ?? 0) + (outputTokens ?? 0),
  };
}

/** What the drawing provider says beside its picture, in APIs whose answers have a text. */
const DRAWING_WORDS = "Here is the picture that you asked for.";

/** Returns the parts of an upstream's answer, as `VerbatimAnswer` has them, without the thoughts of the model. */
export function spokenParts({
  answer,
}: Pick<GeneratedContent, "answer">): readonly Record<string, unknown>[] {
  const candidates = answer?.api === "native" ? answer.fields.candidates : [];
  if (!Array.isArray(candidates)) return [];
  const parts = candidates.flatMap((each): unknown[] => each?.content?.parts ?? []);
  return parts.map((part) => fieldsOf(part) ?? {}).filter(({ thought }) => thought !== true);
}

/** Returns what a model says beside its image; null when it says nothing. */
export function wordsOf(made: Pick<GeneratedContent, "answer" | "isDrawn">): string | null {
  if (made.isDrawn) return DRAWING_WORDS;
  const texts = spokenParts(made).map(({ text }) => text);
  return texts.filter((text) => typeof text === "string" && text !== "").join("\n") || null;
}

/** The content of a response. */
interface ContentFacts {
  id: string;
  usageMetadata: NativeUsage | undefined;
  modelVersion: string;
  images: readonly { mimeType: ImageMimeType; data: string }[];
  /** Why the prompt or the picture was refused; null when neither was. */
  refusal: string | null;
  /** Why there is no image; null when there are some. */
  failure: string | null;
  /** What the upstream said; null when it speaks no vendor's API. */
  answer: VerbatimAnswer | null;
}

/**
 * Writes the response from its facts. The words of an upstream of this API stand as they came. Else a refusal has no candidates, and
 * a model that made no image has a candidate without content.
 */
export function contentBody(content: ContentFacts): NativeBody<"GenerateContentAnswer"> {
  const { id, usageMetadata, modelVersion, images, refusal, failure, answer } = content;
  const facts = { ...(usageMetadata && { usageMetadata }), modelVersion, responseId: id };
  const { candidates, promptFeedback } = answer?.api === "native" ? answer.fields : {};
  if (answer && (candidates ?? promptFeedback) !== undefined)
    return { ...withImages(answer.fields, images), ...facts };
  if (refusal !== null) {
    return { promptFeedback: { blockReason: "PROHIBITED_CONTENT", blockReasonMessage: refusal }, ...facts };
  }
  if (images.length === 0) {
    const finishMessage = failure ?? "The model made no image.";
    return { candidates: [{ finishReason: "NO_IMAGE", finishMessage, index: 0 }], ...facts };
  }
  const parts = images.map((inlineData) => ({ inlineData }));
  return { candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }], ...facts };
}

/** The fields of `VerbatimAnswer` with the images in their places. */
function withImages(fields: VerbatimAnswer["fields"], images: ContentFacts["images"]): object {
  const partOf = (part: unknown) => {
    const { image, ...rest } = fieldsOf(part) ?? {};
    const inlineData = typeof image === "number" ? images[image] : undefined;
    return inlineData === undefined ? rest : { inlineData, ...rest };
  };
  const { candidates, ...others } = fields;
  if (!Array.isArray(candidates)) return others;
  const filled = candidates.map((candidate) => {
    const content = fieldsOf(candidate?.content);
    const parts = Array.isArray(content?.parts) ? content.parts.map(partOf) : undefined;
    return { ...candidate, ...(parts && { content: { ...content, parts } }) };
  });
  return { candidates: filled, ...others };
}

/** What a stream sends while its image is being made. Later requests may have it in their history: see `withoutSigns`. */
const SIGN_PART = { text: SIGN_TEXT, thought: true };
const SIGN_OF_LIFE = JSON.stringify({
  candidates: [{ content: { role: "model", parts: [SIGN_PART] }, index: 0 }],
});

/** Nothing but `data:` lines: clients of this protocol stumble over comments, event names and end marks. */
const event = (json: string | Buffer) => `data: ${json}\n\n`;

const EVENTS: Framing = {
  type: "text/event-stream",
  sign: () => event(SIGN_OF_LIFE),
  result: event,
  failure: (error) => event(JSON.stringify(nativeErrorBody(error))),
  end: "",
};
const ARRAY: Framing = {
  type: "application/json; charset=utf-8",
  sign: (isFirst) => `${isFirst ? "[" : ",\n"}${SIGN_OF_LIFE}`,
  result: (json, isFirst) => `${isFirst ? "[" : ",\n"}${json}`,
  failure: (error) => `,\n${JSON.stringify(nativeErrorBody(error))}`,
  end: "]",
};

const PICTURE_FIRST = '"parts":[{"inlineData":';
const TEXT_BEFORE_PICTURE = `"parts":[${JSON.stringify(SIGN_PART)},{"inlineData":`;

/**
 * The deprecated library of the vendor keeps a streamed picture as an empty text, and then forgets the whole turn: a text of
 * the same event before the picture prevents it.
 */
const EVENTS_WITH_TEXT: Framing = {
  ...EVENTS,
  result: (json) => event(String(json).replace(PICTURE_FIRST, TEXT_BEFORE_PICTURE)),
};
const isDeprecatedLibrary = (request: Request) => /^genai-js\//.test(request.get("x-goog-api-client") ?? "");

/** How the result of a request is streamed: as events with `alt=sse`, else as one JSON array. Throws `REALTIME_INVALID_ARGUMENT` for an `alt` that is not known. */
function framingOf(request: Request): Framing {
  if (readQuery(request, "Alt") !== "sse") return ARRAY;
  return isDeprecatedLibrary(request) ? EVENTS_WITH_TEXT : EVENTS;
}

const marks = {
  "contents[].parts[].text": "prompt",
  "contents[].parts[].inlineData.data": "image",
  "contents[].parts[].thoughtSignature": "text",
  "contents[].parts[].*": "any",
  "generationConfig.*": "any",
  "generationConfig.imageConfig.*": "any",
} as const;
/** The shape of a request. */
export const CONTENT_SHAPE = shapeOf(nativeSchemas.GenerateContent, marks, true);

/** The format of a body with one request. */
export function contentFormat(
  { promptChars }: Pick<Limits, "promptChars">,
  shape: Shape = CONTENT_SHAPE,
): BodyFormat {
  const code = () => "REALTIME_INVALID_ARGUMENT" as const;
  // A prompt, and the earlier turns.
  return { shape, prompts: 2, images: MAX_INPUT_IMAGES, promptChars, code };
}

/**
 * `POST …:generateContent` and `POST …:streamGenerateContent`. The order, behind the key: model, size of
 * the body, its fields, provider, the limits of the key, money.
 */
function generate(deps: ApiDeps, { isStream }: { isStream: boolean }) {
  return realtimeHandler(async (request, response, { caller, key, gone }) => {
    const framing = isStream ? framingOf(request) : null;
    const model = findModel(deps, request, response, "realtime");
    const { limits, features, realtimeOffers } = deps;
    const images = { base64: "lenient", maxBytes: limits.referenceImageBytes } as const;
    const format = contentFormat(limits);
    await withRealtimeBody(deps, request, response, { format, images }, async ({ value, sent, findFile }) => {
      const content = await checkContent(value, {
        ...deps,
        strictImageConfig: features.strictImageConfig,
        sent,
        findFileImage: findFile,
        options: realtimeOffers.options(model),
        imageLimit: inputImageLimit(realtimeOffers.serving(model.id)),
      });
      const operation = isStream ? "streamGenerateContent" : "generateContent";
      const fingerprint = contentFingerprint(operation, model.id, content);
      const asked = { caller, model, content, count: 1, gone, key, fingerprint, render: bodyOf, fieldOf };
      const work = answerOnce(deps, response, asked).catch(withField);
      if (framing) await answerStream(deps, framing, response, work);
      else response.type("json").send(await work);
    });
  });
}

const FIELDS: { [about in UnmetNeed["about"]]?: string } = {
  references: "contents",
  size: "generationConfig.imageConfig.imageSize",
  aspectRatio: "generationConfig.imageConfig.aspectRatio",
  seed: "generationConfig.seed",
  quality: "generationConfig.imageConfig.quality",
  background: "generationConfig.imageConfig.background",
  negativePrompt: "generationConfig.imageConfig.negativePrompt",
};

const fieldOf = (about: UnmetNeed["about"]) => FIELDS[about] ?? about;

/** What an upstream does not accept is somewhere in the contents, unless it says where. */
function withField(error: unknown): never {
  if (!(error instanceof ImgbatchError) || error.code !== "REALTIME_INVALID_ARGUMENT") throw error;
  if (error.param !== undefined) throw error;
  throw new ImgbatchError(error.code, `contents: ${error.message}`, { ...error, param: "contents" });
}

function bodyOf([content]: readonly GeneratedContent[]): Buffer {
  if (content === undefined) throw new Error("a request for one image has no outcome");
  return Buffer.from(JSON.stringify(contentView(content)));
}

/** The errors of every request that makes images in real time. */
export const generateErrors: readonly ServiceErrorCode[] = [
  "REALTIME_INVALID_ARGUMENT",
  "REALTIME_MODEL_NOT_FOUND",
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TOO_LARGE",
  "INVALID_JSON",
  "REALTIME_NO_PROVIDER",
  "REALTIME_INSUFFICIENT_BALANCE",
  "REALTIME_PROVIDER_PAUSES",
  "REALTIME_PROVIDER_LIMITED",
  "REALTIME_PROVIDER_FAILED",
  "REALTIME_PROVIDER_UNREACHABLE",
  "REALTIME_PROVIDER_OVERLOADED",
  "REALTIME_TIMEOUT",
  "REALTIME_IDEMPOTENCY_CONFLICT",
  "REALTIME_OUTCOME_UNKNOWN",
  "BATCH_IMAGE_RESULT_MISSING",
  "REALTIME_CANCELLED",
  "REALTIME_STOPPING",
];

const verb = { method: "post", body: "GenerateContent", errors: generateErrors } as const;

/** The verbs of a model that make an image in real time. */
export const generateOperations: readonly Operation[] = [
  {
    ...verb,
    id: "generateContent",
    path: `${PATHS.nativeModel}:generateContent`,
    summary: "Make or edit an image and wait for it",
    parameters: ["Model", "RequestKey", "MaxCost"],
    answers: {
      200: {
        description: "The image. A response without an `inlineData` part has none, and costs nothing.",
        schema: "GenerateContentAnswer",
        headers: ["RequestReplayed", "MayBePaidTwice", "UpstreamCost", "Ignored"],
      },
    },
    handler: (deps) => generate(deps, { isStream: false }),
  },
  {
    ...verb,
    id: "streamGenerateContent",
    path: `${PATHS.nativeModel}:streamGenerateContent`,
    summary: "The same as a stream",
    parameters: ["Model", "Alt", "RequestKey", "MaxCost"],
    answers: {
      200: {
        description: "Parts of the answer, the last with `finishReason`; or an error, which ends the stream.",
        streamOf: "GenerateContentAnswer",
        headers: ["RequestReplayed", "MayBePaidTwice", "UpstreamCost", "Ignored"],
      },
    },
    handler: (deps) => generate(deps, { isStream: true }),
  },
];
