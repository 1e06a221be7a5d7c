import type { Request, Response } from "express";
import { errorEntry, ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS, type ImageMimeType, type SizePx } from "../../contract/image-formats.ts";
import { type OpenaiBody, openaiCode, openaiErrorBody } from "../../contract/openai-api.ts";
import { PATHS, routes } from "../../contract/routes.ts";
import { findLinkedImage, linkImage } from "../../domain/files/files.ts";
import type { ImageConverter } from "../../domain/ports/image-inspector.ts";
import type { AskedOptions } from "../../domain/ports/image-provider.ts";
import { contentFingerprint } from "../../domain/realtime/checked-content.ts";
import type { Made } from "../../domain/realtime/make-image.ts";
import type { GeneratedContent } from "../../domain/realtime/realtime.ts";
import type { ApiDeps } from "../deps.ts";
import { answerOnce, answerStream, type Framing } from "../http/answer.ts";
import { consentingCaller, headerKey, idempotencyKeyOf } from "../http/authenticate.ts";
import { downloadAnswers, sendDownload } from "../http/downloads.ts";
import { goneSignal } from "../http/exchange.ts";
import { publicUrlOf } from "../http/host.ts";
import { generateErrors, usageOf } from "../native-api/generate.ts";
import type { Answer, ErrorStyle, Operation, Surface } from "../operation.ts";
import { type AskedImages, checkRequest, withRequest } from "./read-request.ts";

interface FinishedImage {
  bytes: Buffer;
  mimeType: ImageMimeType;
}

/** The images of a request in the format that was asked for: one at least. */
interface FinishedImages {
  images: readonly FinishedImage[];
  used: UsedOptions;
  size: SizePx;
  createdAt: number;
  /** The usage of this many images. */
  usage(count: number): OpenaiBody<"Images">["usage"];
}

/** Brings the first image of an outcome into the format that was asked for: the others are not returned. */
async function finishImage(
  converter: ImageConverter,
  { content: { mimeType }, quality }: AskedImages,
  made: Made,
): Promise<Made> {
  const [first, ...others] = made.images;
  if (first === undefined || (first.facts.mimeType === mimeType && quality === null)) return made;
  const image = await converter.convert(first.image, { mimeType, quality });
  return { ...made, images: [{ image, facts: { ...first.facts, mimeType } }, ...others] };
}

/**
 * Returns the first image of each outcome, after `finishImage`. Throws `REALTIME_REFUSED` or `REALTIME_NO_IMAGE` when there
 * is none.
 */
function finishedImages(
  { clock }: Pick<ApiDeps, "clock">,
  asked: AskedImages,
  contents: readonly GeneratedContent[],
): FinishedImages {
  const made = contents.flatMap((content) => content.images.slice(0, 1));
  const [first] = made;
  const [outcome] = contents;
  if (first === undefined || outcome === undefined) throw withoutImage(outcome);
  const { prompt, images: inputs, size, model } = asked.content;
  const { quality = null, background = null } = asked.content.asked ?? {};
  return {
    used: { quality: quality ?? model.defaultQuality ?? null, background },
    images: made.map(({ image: bytes, facts: { mimeType } }) => ({ bytes, mimeType })),
    size: first.facts,
    createdAt: Math.floor(clock.nowMs() / 1000),
    usage: (outputImages) => {
      const facts = { prompt, inputImages: inputs.length, size, outputImages };
      return usageView(usageOf({ model: outcome.executed, ...facts }));
    },
  };
}

function withoutImage(outcome: GeneratedContent | undefined): ImgbatchError {
  const refusal = outcome?.refusal ?? null;
  if (refusal === null) return new ImgbatchError("REALTIME_NO_IMAGE");
  return new ImgbatchError("REALTIME_REFUSED", refusal);
}

/** The answer with all images. `publicUrl` is the beginning of their URLs. */
async function imagesView(
  deps: ApiDeps,
  finished: FinishedImages,
  { isByUrl }: Pick<AskedImages, "isByUrl">,
  publicUrl: string,
): Promise<OpenaiBody<"Images">> {
  const { images, createdAt, usage } = finished;
  const data: OpenaiBody<"Images">["data"] = [];
  for (const image of images) {
    data.push(
      isByUrl
        ? { url: publicUrl + routes.imageOutput(await linkImage(deps, image)) }
        : { b64_json: image.bytes.toString("base64") },
    );
  }
  return { created: createdAt, data, ...factsOf(finished), usage: usage(images.length) };
}

/** A stream of events. Until there is one it has a comment, which clients skip. */
const FRAMING: Framing = {
  type: "text/event-stream",
  opening: ": the images are being made\n\n",
  result: (events) => String(events),
  failure: (error) => event("error", openaiErrorBody(error)),
  end: "",
};

/** An event for each image. */
function eventsOf(finished: FinishedImages, isEdit: boolean): Buffer {
  const type = isEdit ? "image_edit.completed" : "image_generation.completed";
  const events = finished.images.map((image) => event(type, eventView(type, finished, image)));
  return Buffer.from(events.join(""));
}

function eventView(
  type: OpenaiBody<"ImageEvent">["type"],
  finished: FinishedImages,
  { bytes }: FinishedImage,
): OpenaiBody<"ImageEvent"> {
  const { createdAt, usage } = finished;
  const image = { b64_json: bytes.toString("base64"), created_at: createdAt };
  return { type, ...image, ...factsOf(finished), usage: usage(1) };
}

const event = (name: string, value: object) => `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`;

function factsOf({ images: [first], size, used }: FinishedImages) {
  return imageFacts(size, first?.mimeType ?? "image/png", used);
}

/** Null: as the model does it by itself. */
type UsedOptions = Pick<AskedOptions, "quality" | "background">;

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

/** The usage as OpenAI's clients read it. */
export function usageView(usage: ReturnType<typeof usageOf>): OpenaiBody<"Images">["usage"] {
  const tokensOf = (modality: string, all: typeof usage.promptTokensDetails = []) =>
    all.find((each) => each.modality === modality)?.tokenCount ?? 0;
  const detailsOf = (all: typeof usage.candidatesTokensDetails) => ({
    text_tokens: tokensOf("TEXT", all),
    image_tokens: tokensOf("IMAGE", all),
  });
  return {
    input_tokens: usage.promptTokenCount,
    input_tokens_details: detailsOf(usage.promptTokensDetails),
    output_tokens: usage.candidatesTokenCount,
    output_tokens_details: detailsOf(usage.candidatesTokensDetails),
    total_tokens: usage.totalTokenCount,
  };
}

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

function headersOf({ code, httpStatus, retryAfterMs }: ImgbatchError): Record<string, string> {
  const isFinal = FINAL_STATUSES.includes(httpStatus) || FINAL_CODES.includes(code);
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
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const key = idempotencyKeyOf(request, "REALTIME_INVALID_ARGUMENT");
    const gone = goneSignal(response, new ImgbatchError("REALTIME_CANCELLED", "The caller went away."));
    const publicUrl = publicUrlOf(deps, request);
    await withRequest(deps, request, response, isEdit, async (sent) => {
      try {
        const asked = await checkRequest(deps, caller.group, sent);
        const { content, count } = asked;
        const work = answerOnce(deps, response, {
          ...{ caller, content, count, gone },
          once: key === null ? null : { key, fingerprint: fingerprintOf(asked, isEdit) },
          finish: (made) => finishImage(deps.converter, asked, made),
          render: async (contents) => {
            const finished = finishedImages(deps, asked, contents);
            if (asked.isStream) return eventsOf(finished, isEdit);
            return Buffer.from(JSON.stringify(await imagesView(deps, finished, asked, publicUrl)));
          },
        });
        if (asked.isStream) await answerStream(deps, FRAMING, response, work);
        else response.type("json").send(await work);
      } catch (error) {
        // The caller has disconnected: no response can reach it.
        if (!gone.aborted) throw error;
      }
    });
  };
}

function fingerprintOf({ content, ...rest }: AskedImages, isEdit: boolean): string {
  return contentFingerprint(`images ${JSON.stringify({ isEdit, ...rest })}`, content);
}

const errors: readonly ServiceErrorCode[] = [
  ...generateErrors,
  "REALTIME_REFUSED",
  "REALTIME_NO_IMAGE",
  "REQUEST_TIMEOUT",
  "BATCH_IMAGE_QUEUE_FAILED",
];

const answers: Record<number, Answer> = {
  200: {
    description: "The images that were made; with `stream`, an event for each of them.",
    schema: "Images",
    eventsOf: "ImageEvent",
    headers: ["RequestReplayed"],
  },
};

const make = { method: "post", parameters: ["RequestKey", "MaxCost"], answers, errors } as const;

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
  prefix: PATHS.imageGenerations,
  operations: [generateOperation],
  credential: headerKey,
  // Also for paths as they were sent, where no request could be parsed.
  errorStyles: [[/^(?:\/v1)?\/images\/(?:generations|edits|outputs)(?:\/|$)/, openaiErrorStyle]],
};

const edits: Surface = {
  tag: "realtime",
  prefix: PATHS.imageEdits,
  operations: [editOperation],
  credential: headerKey,
};

const outputs: Surface = {
  tag: "realtime",
  prefix: "/v1/images/outputs",
  operations: [outputOperation],
  credential: null,
};

/** Images for OpenAI clients. */
export const openaiImages: readonly Surface[] = [generations, edits, outputs];
