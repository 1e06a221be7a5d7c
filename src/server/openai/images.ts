import { errorEntry, ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import {
  IMAGE_EXTENSIONS,
  type ImageMimeType,
  readImageHeader,
  type SizePx,
} from "../../contract/image-formats.ts";
import { type OpenaiBody, openaiCode, openaiErrorBody, openaiSchemas } from "../../contract/openai-api.ts";
import { PATHS, routes } from "../../contract/routes.ts";
import { contentFingerprint } from "../../domain/checked-content.ts";
import { findLinkedImage, linkImage } from "../../domain/files/uploads.ts";
import { DRAWN, type UnmetNeed } from "../../domain/models.ts";
import type { ImageConverter } from "../../domain/ports/image-inspector.ts";
import type { ImageOptions, UpstreamUsage, VerbatimAnswer } from "../../domain/ports/image-provider.ts";
import type { Made } from "../../domain/realtime/make-image.ts";
import type { GeneratedContent } from "../../domain/realtime/realtime.ts";
import { isObject } from "../../kernel/json.ts";
import type { ApiDeps } from "../deps.ts";
import { answerOnce, answerStream, type Framing, realtimeHandler } from "../http/answer.ts";
import { headerKey } from "../http/authenticate.ts";
import { downloadAnswers, sendDownload } from "../http/downloads.ts";
import type { ErrorStyle } from "../http/errors.ts";
import { publicUrlOf } from "../http/host.ts";
import { generateErrors, usageMetadataOf, type usageOf } from "../native-api/generate.ts";
import type { Answer, Operation, Surface } from "../operation.ts";
import { type AskedImages, checkRequest, withRequest } from "./read-request.ts";

/** An image in the format that was asked for. */
export interface FinishedImage {
  bytes: Buffer;
  mimeType: ImageMimeType;
  size: SizePx;
  usage: Usage | undefined;
  revisedPrompt?: string;
  /** The unfinished pictures before the image. */
  partials: readonly Buffer[];
}

type Usage = NonNullable<OpenaiBody<"Images">["usage"]>;

/** The images of a request in the format that was asked for: one at least. */
interface FinishedImages {
  images: readonly FinishedImage[];
  used: UsedOptions;
  size: SizePx;
  createdAt: number;
}

/** Brings the first image of an outcome into the format that was asked for: the others are not returned. */
export async function finishImage(
  converter: ImageConverter,
  { content, quality }: Pick<AskedImages, "content" | "quality">,
  made: Made,
): Promise<Made> {
  const { mimeType } = content.options;
  const [first, ...others] = made.images;
  if (first === undefined || (first.facts.mimeType === mimeType && quality === null)) return made;
  const image = await converter.convert(first.image, { mimeType, quality });
  return { ...made, images: [{ image, facts: { ...first.facts, mimeType } }, ...others] };
}

/**
 * Returns the first image of each outcome, after `finishImage`. Throws `REALTIME_REFUSED` or `REALTIME_NO_IMAGE` when there
 * is none.
 */
async function finishedImages(
  { clock, converter }: Pick<ApiDeps, "clock" | "converter">,
  asked: AskedImages,
  contents: readonly GeneratedContent[],
): Promise<FinishedImages> {
  const made: FinishedImage[] = [];
  for (const content of contents) {
    const image = await finishedImage(converter, content, asked.content);
    if (image !== null) made.push(image);
  }
  const [first] = made;
  const [outcome] = contents;
  if (first === undefined || outcome === undefined) throw withoutImage(outcome);
  return {
    used: usedOptions(asked.content.options, asked.model.defaultQuality, outcome.isDrawn),
    images: made,
    size: first.size,
    createdAt: Math.floor(clock.nowMs() / 1000),
  };
}

/**
 * Returns the quality and background of an image. `usual`: the default quality of its model. A drawing has the default quality
 * of drawings and is opaque, unless the request says otherwise.
 */
export function usedOptions(
  { quality, background }: UsedOptions,
  usual: string | undefined,
  isDrawn: boolean,
): UsedOptions {
  return {
    quality: quality ?? usual ?? (isDrawn ? DRAWN.defaultQuality : null),
    background: background ?? (isDrawn ? "opaque" : null),
  };
}

/** How sharp the unfinished pictures of a drawing are: the pixels of their longer side. */
const PARTIAL_EDGES_PX = [32, 96, 256] as const;

/** Returns as many unfinished pictures of an image as were asked for. Those of a drawing are made here, each sharper than the last. */
async function partialsOf(
  converter: ImageConverter,
  image: Buffer,
  { partials, isDrawn }: GeneratedContent,
  { partialImages = 0, options: { mimeType } }: AskedImages["content"],
): Promise<Buffer[]> {
  if (partialImages === 0) return [];
  if (isDrawn && partials.length === 0) {
    const edges = PARTIAL_EDGES_PX.slice(0, partialImages);
    return Promise.all(edges.map((edgePx) => converter.soften(image, { mimeType, edgePx })));
  }
  // What an upstream has sent is passed on as it is, unless it is no picture.
  return partials.filter((each) => readImageHeader(each) !== null).slice(0, partialImages);
}

/** Returns the first image of an outcome, with its unfinished pictures, its usage and the prompt that the upstream has made of ours; null without an image. */
export async function finishedImage(
  converter: ImageConverter,
  content: GeneratedContent,
  asked: AskedImages["content"],
): Promise<FinishedImage | null> {
  const [first] = content.images;
  if (first === undefined) return null;
  const { image: bytes, facts } = first;
  const { prompt, images: inputs, options } = asked;
  const { answer, usage, isDrawn, executed } = content;
  const drawn = { model: executed, prompt, inputImages: inputs.length, size: options.size, outputImages: 1 };
  const words = revisedPromptOf(answer);
  return {
    bytes,
    size: facts,
    mimeType: facts.mimeType,
    partials: await partialsOf(converter, bytes, content, asked),
    usage: usageView(answer, usage, isDrawn ? drawn : null),
    ...(words !== null && { revisedPrompt: words }),
  };
}

/** Returns the prompt that an upstream has made of ours; null when it does not say that it has. */
export function revisedPromptOf(answer: VerbatimAnswer | null): string | null {
  const data = answer?.api === "openai" ? answer.fields.data : [];
  const words = Array.isArray(data) ? data[0]?.revised_prompt : undefined;
  return typeof words === "string" ? words : null;
}

export function withoutImage(outcome: GeneratedContent | undefined): ImgbatchError {
  const { refusal = null, failure } = outcome ?? {};
  if (refusal === null) return new ImgbatchError("REALTIME_NO_IMAGE", failure ?? undefined);
  return new ImgbatchError("REALTIME_REFUSED", refusal);
}

/** The answer with all images. `publicUrl` is the beginning of their URLs. */
async function imagesView(
  deps: ApiDeps,
  finished: FinishedImages,
  { isByUrl }: Pick<AskedImages, "isByUrl">,
  publicUrl: string,
): Promise<OpenaiBody<"Images">> {
  const { images, createdAt } = finished;
  const data: OpenaiBody<"Images">["data"] = [];
  for (const image of images) {
    const { revisedPrompt } = image;
    const content = isByUrl
      ? { url: publicUrl + routes.imageOutput(await linkImage(deps, image)) }
      : { b64_json: image.bytes.toString("base64") };
    data.push({ ...content, ...(revisedPrompt !== undefined && { revised_prompt: revisedPrompt }) });
  }
  const usage = images.map((image) => image.usage).reduce(sumOfUsage);
  return { created: createdAt, data, ...factsOf(finished), ...(usage && { usage }) };
}

/** Adds two usages, each number to its like. Undefined when one is not known. */
function sumOfUsage(a: Usage | undefined, b: Usage | undefined): Usage | undefined {
  const add = (left: unknown, right: unknown): unknown => {
    if (isObject(left) && isObject(right)) {
      const names = [...new Set([...Object.keys(left), ...Object.keys(right)])];
      return Object.fromEntries(names.map((name) => [name, add(left[name], right[name])]));
    }
    return typeof left === "number" && typeof right === "number" ? left + right : (left ?? right);
  };
  return a && b && (add(a, b) as Usage);
}

/** A stream of events. Until there is one it has comments, which clients skip. */
const FRAMING: Framing = {
  type: "text/event-stream",
  sign: () => ": the images are being made\n\n",
  result: (events) => String(events),
  failure: (error) => event("error", openaiErrorBody(error)),
  end: "",
};

/** Writes the events of each image: its unfinished pictures, then the image. */
function eventsOf(finished: FinishedImages, isEdit: boolean): Buffer {
  const kind = isEdit ? "image_edit" : "image_generation";
  const view = (type: OpenaiBody<"ImageEvent">["type"], bytes: Buffer, more: object): string => {
    const image = { b64_json: bytes.toString("base64"), created_at: finished.createdAt };
    const data: OpenaiBody<"ImageEvent"> = { type, ...more, ...image, ...factsOf(finished) };
    return event(type, data);
  };
  const events = finished.images.flatMap(({ bytes, usage, partials }) => [
    ...partials.map((each, i) => view(`${kind}.partial_image`, each, { partial_image_index: i })),
    view(`${kind}.completed`, bytes, usage ? { usage } : {}),
  ]);
  return Buffer.from(events.join(""));
}

export const event = (name: string, value: object) => `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`;

function factsOf({ images: [first], size, used }: FinishedImages) {
  return imageFacts(size, first?.mimeType ?? "image/png", used);
}

/** Null: as the model does it by itself. */
type UsedOptions = Pick<ImageOptions, "quality" | "background">;

/** The facts of an answer about its images. */
export function imageFacts(
  { widthPx, heightPx }: SizePx,
  mimeType: ImageMimeType,
  { quality, background }: UsedOptions,
): Pick<OpenaiBody<"Images">, "size" | "quality" | "background" | "output_format"> {
  const format = mimeType.replace("image/", "") as OpenaiBody<"Images">["output_format"];
  return {
    size: `${widthPx}x${heightPx}`,
    quality: quality ?? "auto",
    background: background ?? "auto",
    output_format: format,
  };
}

/**
 * Returns the usage of an image as OpenAI's clients read it: as the upstream counts it, or of a drawing our own; undefined where
 * nobody has counted.
 */
export function usageView(
  answer: VerbatimAnswer | null,
  counted: UpstreamUsage | null,
  drawn: Parameters<typeof usageOf>[0] | null,
): Usage | undefined {
  const own = answer?.api === "openai" ? answer.fields.usage : undefined;
  if (isUsage(own)) return own;
  const usage = usageMetadataOf(answer, counted, drawn);
  if (usage === undefined) return undefined;
  const { promptTokenCount: input = 0, candidatesTokenCount: made = 0, thoughtsTokenCount: thought } = usage;
  const output = made + (typeof thought === "number" ? thought : 0);
  const detailsOf = (all: typeof usage.promptTokensDetails = []) => {
    const tokensOf = (modality: string) => all.find((each) => each.modality === modality)?.tokenCount ?? 0;
    return { text_tokens: tokensOf("TEXT"), image_tokens: tokensOf("IMAGE") };
  };
  const { promptTokensDetails: inputs, candidatesTokensDetails: outputs } = usage;
  return {
    input_tokens: input,
    ...(inputs && { input_tokens_details: detailsOf(inputs) }),
    output_tokens: output,
    ...(outputs && { output_tokens_details: detailsOf(outputs) }),
    total_tokens: usage.totalTokenCount ?? input + output,
  };
}

const usageSchema = openaiSchemas.Images.shape.usage.unwrap();
const isUsage = (value: unknown): value is Usage => usageSchema.safeParse(value).success;

/** OpenAI's client libraries ignore a longer time, and ask again at once. */
const LONGEST_RETRY_SECONDS = 60;
/** The statuses after which those libraries ask again, though the images would be paid again. */
const FINAL_STATUSES: readonly number[] = [402, 409, 502, 504];
const FINAL_CODES: readonly string[] = ["REALTIME_REFUSED", "REALTIME_NO_IMAGE"];

/**
 * Errors in OpenAI's shape. The status line has the message of the code in the catalogue, because some clients show
 * nothing else of an error.
 */
export const openaiErrorStyle: ErrorStyle = {
  body: openaiErrorBody,
  schema: (codes) => ({
    allOf: [
      { $ref: "#/components/schemas/OpenaiError" },
      { properties: { error: { properties: { code: { enum: codes.map(openaiCode) } } } } },
    ],
  }),
  head: (error) => ({ reason: reasonOf(error), headers: headersOf(error) }),
};

/** Nothing but printable ASCII fits into a status line. */
function reasonOf({ code }: ImgbatchError): string {
  return errorEntry(code)
    .message.replace(/[^\x20-\x7e]/g, "")
    .replace(/\.$/, "");
}

function headersOf({ code, httpStatus, retryAfterMs, mayBePaid }: ImgbatchError): Record<string, string> {
  const isFinal = mayBePaid || FINAL_STATUSES.includes(httpStatus) || FINAL_CODES.includes(code);
  const seconds = Math.ceil((retryAfterMs ?? 0) / 1000);
  return {
    ...(isFinal ? { "x-should-retry": "false" } : {}),
    ...(seconds > LONGEST_RETRY_SECONDS ? { "Retry-After": String(LONGEST_RETRY_SECONDS) } : {}),
  };
}

/**
 * `POST /v1/images/generations` and `POST /v1/images/edits`. The order, behind the key: its limits, the body, its fields,
 * provider, money.
 */
function makeImages(deps: ApiDeps, { isEdit }: { isEdit: boolean }) {
  return realtimeHandler(async (request, response, { caller, key, gone }) => {
    const publicUrl = publicUrlOf(deps, request);
    await withRequest(deps, request, response, isEdit, async (sent) => {
      const asked = await checkRequest(deps, caller.group, sent);
      const { model, content, count } = asked;
      const answer = answerOnce(deps, response, {
        caller,
        model,
        content,
        count,
        gone,
        key,
        fingerprint: fingerprintOf(asked, isEdit),
        fieldOf,
        finish: (made) => finishImage(deps.converter, asked, made),
        render: async (contents) => {
          const finished = await finishedImages(deps, asked, contents);
          if (asked.isStream) return eventsOf(finished, isEdit);
          return Buffer.from(JSON.stringify(await imagesView(deps, finished, asked, publicUrl)));
        },
      });
      const work = answer.catch(withFinalStatus);
      if (asked.isStream) await answerStream(deps, FRAMING, response, work);
      else response.type("json").send(await work);
    });
  });
}

/**
 * Throws the error with a status that is final, if the request may have been paid. Some libraries repeat a request after 408, 409,
 * 429 and every 5xx, whatever the headers say.
 */
export function withFinalStatus(error: unknown): never {
  if (!(error instanceof ImgbatchError) || !error.mayBePaid) throw error;
  const { message, cause, param } = error;
  throw new ImgbatchError("REALTIME_MAY_BE_PAID", message, { cause, param, mayBePaid: true });
}

const FIELDS: { [about in UnmetNeed["about"]]?: string } = { references: "image", aspectRatio: "size" };

export const fieldOf = (about: UnmetNeed["about"]) => FIELDS[about] ?? about;

function fingerprintOf({ model, content, ...rest }: AskedImages, isEdit: boolean): string {
  return contentFingerprint(`images ${JSON.stringify({ isEdit, ...rest })}`, model.id, content);
}

/** The errors of every request whose answer is an image or an error, never a text alone. */
export const imageErrors: readonly ServiceErrorCode[] = [
  ...generateErrors,
  "REALTIME_REFUSED",
  "REALTIME_NO_IMAGE",
  "REALTIME_MAY_BE_PAID",
  "REQUEST_TIMEOUT",
  "BATCH_IMAGE_QUEUE_FAILED",
];

const answers: Record<number, Answer> = {
  200: {
    description: "The images that were made; with `stream`, an event for each of them.",
    schema: "Images",
    eventsOf: "ImageEvent",
    headers: ["RequestReplayed", "MayBePaidTwice", "UpstreamCost", "Ignored"],
  },
};

const make = { method: "post", parameters: ["RequestKey", "MaxCost"], answers, errors: imageErrors } as const;

/** Makes images and waits for them. */
const generateOperation: Operation = {
  ...make,
  id: "generateImages",
  path: PATHS.imageGenerations,
  summary: "Make images and wait for them, for OpenAI clients",
  body: "GenerateImages",
  handler: (deps) => makeImages(deps, { isEdit: false }),
};

const editOperation: Operation = {
  ...make,
  id: "editImages",
  path: PATHS.imageEdits,
  summary: "The same from images of yours",
  body: "EditImages",
  formBody: "EditImagesForm",
  handler: (deps) => makeImages(deps, { isEdit: true }),
};

const outputOperation: Operation = {
  id: "getImageOutput",
  method: "get",
  path: PATHS.imageOutput,
  summary: "An image that was asked for by URL, for an hour",
  parameters: ["OutputName", "Range", "IfRange", "IfNoneMatch"],
  answers: downloadAnswers("The image.", ["image/png", "image/jpeg", "image/webp"]),
  errors: ["REALTIME_OUTPUT_NOT_FOUND"],
  handler: (deps) => async (request, response) => {
    const { name } = request.params;
    const image = await findLinkedImage(deps, typeof name === "string" ? name : "");
    if (image === null) throw new ImgbatchError("REALTIME_OUTPUT_NOT_FOUND");
    const { id, blobKey, mimeType, sizeBytes } = image;
    const download = {
      sizeBytes,
      etag: id,
      mimeType,
      fileName: `image.${IMAGE_EXTENSIONS[mimeType]}`,
      open: async (range: { start: number; end: number }) => {
        const bytes = await deps.blobs.open(blobKey, range);
        if (bytes !== null) return bytes;
        throw new ImgbatchError("REALTIME_OUTPUT_NOT_FOUND");
      },
    };
    // Nobody's downloads are counted here: no key is known.
    await sendDownload(request, response, download, () => () => {});
  },
};

const generations: Surface = {
  tag: "realtime",
  vendor: "openai",
  prefix: PATHS.imageGenerations,
  operations: [generateOperation],
  credential: headerKey,
  // Also for paths as they were sent, where no request could be parsed.
  errorStyles: [[/^(?:\/v1)?\/images\/(?:generations|edits|outputs)(?:\/|$)/, openaiErrorStyle]],
};

const edits: Surface = {
  tag: "realtime",
  vendor: "openai",
  prefix: PATHS.imageEdits,
  operations: [editOperation],
  credential: headerKey,
};

const outputs: Surface = {
  tag: "realtime",
  vendor: "openai",
  prefix: "/v1/images/outputs",
  operations: [outputOperation],
  credential: null,
};

/** Images for OpenAI clients. */
export const openaiImages: readonly Surface[] = [generations, edits, outputs];
