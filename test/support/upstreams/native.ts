import {
  type Answer,
  type FakeUpstream,
  type ImageService,
  startUpstream,
  type Twist,
} from "./fake-upstream.ts";
import { type ImageType, imageOf, lookAt } from "./images.ts";

/** The fields that a message of the vendor's API has: `true` for any value, else the fields of the message in it. */
export interface Fields {
  [name: string]: true | Fields;
}

const content: Fields = {
  role: true,
  parts: {
    ...{ text: true, thought: true, thoughtSignature: true },
    inlineData: { mimeType: true, data: true },
    fileData: { mimeType: true, fileUri: true },
  },
};

const MESSAGE_FIELDS: Record<string, Fields> = {
  GenerateContentRequest: {
    contents: content,
    systemInstruction: content,
    generationConfig: {
      ...{
        responseModalities: true,
        responseMimeType: true,
        seed: true,
        temperature: true,
        topP: true,
        topK: true,
      },
      ...{ candidateCount: true, maxOutputTokens: true, stopSequences: true, thinkingConfig: true },
      imageConfig: { aspectRatio: true, imageSize: true },
    },
    ...{
      safetySettings: true,
      tools: true,
      toolConfig: true,
      cachedContent: true,
      serviceTier: true,
      model: true,
    },
  },
};

class UnknownField extends Error {
  readonly path: string;

  constructor(path: string, message: string) {
    super(message);
    this.path = path;
  }
}

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** The value of a field under its name in camel or snake case. */
export function fieldOf(message: unknown, name: string): unknown {
  if (typeof message !== "object" || message === null) return undefined;
  const fields = message as Record<string, unknown>;
  return fields[name] ?? fields[snake(name)];
}

/** Throws `UnknownField`, with the vendor's words, for a field that the message does not have. */
function hasShape(message: unknown, fields: Fields, path: string): void {
  if (Array.isArray(message)) {
    for (const [at, element] of message.entries()) hasShape(element, fields, `${path}[${at}]`);
    return;
  }
  if (typeof message !== "object" || message === null)
    throw new UnknownField(path, `Invalid value at '${path}' (type.googleapis.com/google.protobuf.Struct).`);
  for (const [name, value] of Object.entries(message)) {
    const known = Object.keys(fields).find((field) => field === name || snake(field) === name);
    if (known === undefined) {
      const where = path === "" ? "" : ` at '${path}'`;
      throw new UnknownField(
        path,
        `Invalid JSON payload received. Unknown name "${name}"${where}: Cannot find field.`,
      );
    }
    const inner = fields[known];
    if (inner !== true && inner !== undefined && value !== null)
      hasShape(value, inner, path === "" ? snake(known) : `${path}.${snake(known)}`);
  }
}

interface NativeOptions {
  key?: string;
  /** The header of the key, besides `?key=`. Default `x-goog-api-key`. */
  keyHeader?: string;
  models?: readonly string[];
}

export const NATIVE_KEY = "AIzaSyFakeNativeKeyOfTheTests0123456789";
const MODELS = ["gemini-3.1-flash-image", "gemini-3-pro-image", "gemini-2.5-flash-image"];
const BODY_BYTES = 20_971_520;
const RATIOS_1K: Record<string, readonly [number, number]> = {
  ...{ "1:1": [1024, 1024], "2:3": [848, 1264], "3:2": [1264, 848], "3:4": [896, 1200], "4:3": [1200, 896] },
  ...{
    "4:5": [928, 1152],
    "5:4": [1152, 928],
    "9:16": [768, 1376],
    "16:9": [1376, 768],
    "21:9": [1584, 672],
  },
};
const EXTENDED_1K: typeof RATIOS_1K = {
  ...{ "1:4": [512, 2048], "4:1": [2048, 512], "1:8": [384, 3072], "8:1": [3072, 384] },
};
const TIERS: Record<string, number> = { "512": 0.5, "1K": 1, "2K": 2, "4K": 4 };
/** Tokens of one image. */
const TOKENS: Record<string, number> = { "512": 747, "1K": 1120, "2K": 1680, "4K": 2520 };

/** The vendor's `generateContent` and its list of models, as strict about fields as the vendor. */
export function startNative(options: NativeOptions = {}): Promise<FakeUpstream> {
  const { key = NATIVE_KEY, keyHeader = "x-goog-api-key", models = MODELS } = options;
  const service: ImageService = {
    kindOf: (method, path) => (method === "GET" ? "models" : isGenerate(path) ? "images" : "other"),
    promptOf: promptIn,
    answer: async (request, twist) => {
      const url = new URL(request.path, "http://native");
      const sent = request.headers[keyHeader.toLowerCase()] ?? url.searchParams.get("key");
      if (sent === null || sent === undefined || sent === "") return nativeErrors.noKey();
      if (sent !== key) return nativeErrors.invalidKey();
      const [, version = "", rest = ""] = /^\/(v1beta|v1)\/(.*)$/.exec(url.pathname) ?? [];
      if (request.kind === "models") return listed(rest, models, version);
      const [, model = "", verb] = /^models\/([^:/]+):(\w+)$/.exec(rest) ?? [];
      if (verb !== "generateContent" || !models.includes(model)) return nativeErrors.noModel(model, version);
      if (Number(request.headers["content-length"]) > BODY_BYTES)
        return nativeErrors.invalid(`Request payload size exceeds the limit: ${BODY_BYTES} bytes.`);
      return (await problemOf(request.body)) ?? made(request.body, model, twist);
    },
  };
  return startUpstream(service);
}

const isGenerate = (path: string) => /:\w*[gG]enerateContent\b/.test(path);

/** Refuses a request for an image whose fields or values the service does not know; null for a good one. */
export async function problemOf(body: unknown): Promise<Answer | null> {
  return shapeProblem(body, MESSAGE_FIELDS.GenerateContentRequest as Fields) ?? valueProblem(body);
}

/** Refuses a message with a field that it does not have. */
export function shapeProblem(body: unknown, fields: Fields): Answer | null {
  try {
    hasShape(body, fields, "");
    return null;
  } catch (error) {
    if (error instanceof UnknownField) return nativeErrors.badRequest(error.path, error.message);
    throw error;
  }
}

/** The list of models, or one of them. */
export function listed(rest: string, models: readonly string[], version: string): Answer {
  const entries = models.map((id) => ({
    ...{
      name: `models/${id}`,
      version: "3.0",
      displayName: id,
      inputTokenLimit: 131072,
      outputTokenLimit: 32768,
    },
    supportedGenerationMethods: ["generateContent", "countTokens", "batchGenerateContent"],
  }));
  if (rest === "models") return json(200, { models: entries });
  const found = entries.find((entry) => entry.name === rest);
  return found ? json(200, found) : nativeErrors.noModel(rest.replace("models/", ""), version);
}

/** The faults of the values of a request whose fields are known. */
async function valueProblem(body: unknown): Promise<Answer | null> {
  const { invalid } = nativeErrors;
  const contents = fieldOf(body, "contents");
  if (!Array.isArray(contents) || contents.length === 0)
    return invalid("* GenerateContentRequest.contents: contents is not specified");
  for (const part of contents.flatMap((content) => fieldOf(content, "parts") as unknown[])) {
    const data = fieldOf(fieldOf(part, "inlineData"), "data");
    if (data === undefined) continue;
    const bytes = Buffer.from(String(data), "base64");
    if (!(await lookAt(bytes)))
      return invalid("Unable to process input image. Please retry or report the problem.");
    if (typeof fieldOf(fieldOf(part, "inlineData"), "mimeType") !== "string")
      return invalid("Unable to submit request because it has no mimeType for inlineData.");
  }
  const config = fieldOf(body, "generationConfig");
  const modalities = fieldOf(config, "responseModalities") ?? ["TEXT", "IMAGE"];
  const wanted = Array.isArray(modalities) ? modalities.map((one) => String(one).toUpperCase()) : [];
  if (!wanted.includes("IMAGE") || wanted.some((one) => !["TEXT", "IMAGE"].includes(one)))
    return invalid("The requested combination of response modalities is not supported by the model.");
  const mime = fieldOf(config, "responseMimeType");
  if (mime !== undefined && !/^(text|application)\//.test(String(mime)))
    return invalid(`* GenerateContentRequest.generation_config.response_mime_type: ${mime} is not allowed`);
  const image = fieldOf(config, "imageConfig");
  const [ratio, tier] = [fieldOf(image, "aspectRatio"), fieldOf(image, "imageSize")];
  if (ratio !== undefined && !(String(ratio) in { ...RATIOS_1K, ...EXTENDED_1K }))
    return invalid(`Invalid value at 'generation_config.image_config.aspect_ratio': "${ratio}"`);
  if (tier !== undefined && !(String(tier) in TIERS))
    return invalid(`Invalid value at 'generation_config.image_config.image_size': "${tier}"`);
  return null;
}

/** The answer with the images that a good request asks for. */
export async function made(body: unknown, model: string, twist: Twist): Promise<Answer> {
  const config = fieldOf(body, "generationConfig");
  const image = fieldOf(config, "imageConfig");
  const tier = String(fieldOf(image, "imageSize") ?? "1K");
  const ratio = String(fieldOf(image, "aspectRatio") ?? "1:1");
  const [width, height] = ({ ...RATIOS_1K, ...EXTENDED_1K }[ratio] ?? [1024, 1024]).map(
    (side) => side * (TIERS[tier] ?? 1),
  ) as [number, number];
  const prompt = String(promptIn(body));
  const { images: count = 1, thoughts = 0, type = "png", label = `image/${type}`, bytes } = twist;
  const wish = { ...(twist.size ?? { width, height }), type: type as ImageType };
  const draw = async (index: number) => bytes ?? (await imageOf(prompt, { ...wish, index }));
  const interim = await Promise.all(Array.from({ length: thoughts }, (_, at) => draw(100 + at)));
  const images = await Promise.all(Array.from({ length: count }, (_, at) => draw(at)));
  const part = (data: Buffer) => ({ inlineData: { mimeType: label, data: data.toString("base64") } });
  const tokens = (TOKENS[tier] ?? 1120) * count;
  const prompted = Math.ceil(prompt.length / 4);
  return {
    ...json(200, {
      candidates: [
        {
          content: {
            role: "model",
            parts: [
              ...interim.flatMap((data) => [
                { text: "I try this.", thought: true },
                { ...part(data), thought: true },
              ]),
              { text: "Here it is.", thoughtSignature: "c2lnbmF0dXJl" },
              ...images.map((data) => ({ ...part(data), thoughtSignature: "c2lnbmF0dXJl" })),
            ],
          },
          ...{ finishReason: "STOP", index: 0 },
        },
      ],
      usageMetadata: {
        ...{ promptTokenCount: prompted, candidatesTokenCount: tokens + 212, thoughtsTokenCount: 137 },
        totalTokenCount: prompted + tokens + 212 + 137,
      },
      ...{ modelVersion: model, responseId: "resp-of-the-fake" },
      ...twist.more,
    }),
    images,
  };
}

/** The text of the last turn. */
export function promptIn(body: unknown): string | null {
  const contents = fieldOf(body, "contents");
  const parts = fieldOf(Array.isArray(contents) ? contents.at(-1) : contents, "parts");
  const texts = Array.isArray(parts) ? parts.map((part) => fieldOf(part, "text")) : [];
  return texts.filter((text) => typeof text === "string").join("\n") || null;
}

/** Answers without an image, with status 200. */
export const nativeBlocks = {
  prompt: (blockReason = "PROHIBITED_CONTENT") =>
    json(200, {
      promptFeedback: { blockReason },
      usageMetadata: { promptTokenCount: 9 },
      modelVersion: MODELS[0],
    }),
  image: (
    finishReason = "IMAGE_SAFETY",
    finishMessage = "Unable to show the image: it may violate the policy.",
  ) => json(200, { candidates: [{ finishReason, finishMessage, index: 0 }], modelVersion: MODELS[0] }),
  noImage: () => json(200, { candidates: [{ index: 0, finishReason: "NO_IMAGE" }], modelVersion: MODELS[0] }),
  words: (text: string) =>
    json(200, {
      candidates: [{ content: { role: "model", parts: [{ text }] }, finishReason: "STOP", index: 0 }],
    }),
};

const TYPE = "type.googleapis.com/google.rpc";

/** The vendor's errors, as they were seen. */
export const nativeErrors = {
  invalid: (message: string) => failure(400, "INVALID_ARGUMENT", message),
  badRequest: (field: string, description: string) =>
    failure(400, "INVALID_ARGUMENT", description, [
      { "@type": `${TYPE}.BadRequest`, fieldViolations: [{ field, description }] },
    ]),
  invalidKey: () => {
    const message = "API key not valid. Please pass a valid API key.";
    const metadata = { service: "generativelanguage.googleapis.com" };
    return failure(400, "INVALID_ARGUMENT", message, [
      { "@type": `${TYPE}.ErrorInfo`, reason: "API_KEY_INVALID", domain: "googleapis.com", metadata },
      { "@type": `${TYPE}.LocalizedMessage`, locale: "en-US", message },
    ]);
  },
  billing: () =>
    failure(400, "FAILED_PRECONDITION", "The service needs billing. Please enable billing on your project."),
  noKey: () =>
    failure(
      403,
      "PERMISSION_DENIED",
      "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API.",
    ),
  leakedKey: () =>
    failure(403, "PERMISSION_DENIED", "Your API key was reported as leaked. Please use another API key."),
  noModel: (model: string, version: string) =>
    failure(
      404,
      "NOT_FOUND",
      `models/${model} is not found for API version ${version}, or is not supported.`,
    ),
  limited: ({ retryDelay = "37s" as string | null, limit = 20, quota = "PerMinute" } = {}) =>
    failure(
      429,
      "RESOURCE_EXHAUSTED",
      `You exceeded your current quota, please check your plan and billing details.\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: ${limit}, model: ${MODELS[0]}${retryDelay === null ? "" : `\nPlease retry in ${retryDelay}.`}`,
      [
        {
          "@type": `${TYPE}.QuotaFailure`,
          violations: [{ quotaId: `GenerateRequests${quota}PerProjectPerModel-FreeTier` }],
        },
        ...(retryDelay === null ? [] : [{ "@type": `${TYPE}.RetryInfo`, retryDelay }]),
      ],
    ),
  perDay: () => nativeErrors.limited({ quota: "PerDay", retryDelay: "41s" }),
  noQuota: () => nativeErrors.limited({ limit: 0 }),
  internal: () => failure(500, "INTERNAL", "An internal error has occurred. Please retry or report."),
  overloaded: () => failure(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
  deadline: () => failure(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
  other: (code: number, status: string, message: string) => failure(code, status, message),
};

function failure(code: number, status: string, message: string, details?: object[]): Answer {
  return json(code, { error: { code, message, status, ...(details ? { details } : {}) } });
}

function json(status: number, body: object): Answer {
  return { status, body: JSON.stringify(body) };
}
