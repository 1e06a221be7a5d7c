import { ImgbatchError } from "../../contract/errors.ts";
import type { ImageMimeType, SizePx } from "../../contract/image-formats.ts";
import {
  type ImageEvent,
  type Images,
  type ImagesUsage,
  openaiErrorBody,
} from "../../contract/openai-api.ts";
import { routes } from "../../contract/routes.ts";
import { linkImage } from "../../domain/files/linked-images.ts";
import type { ImageConverter } from "../../domain/ports/image-inspector.ts";
import type { Made } from "../../domain/realtime/make-image.ts";
import type { GeneratedContent } from "../../domain/realtime/realtime.ts";
import type { ApiDeps } from "../deps.ts";
import type { Framing } from "../http/answer.ts";
import { usageOf } from "../native-api/content-view.ts";
import type { AskedImages } from "./check-request.ts";

interface FinishedImage {
  bytes: Buffer;
  mimeType: ImageMimeType;
}

/** The images of a request in the format that was asked for: one at least. */
interface FinishedImages {
  images: readonly FinishedImage[];
  size: SizePx;
  createdAt: number;
  /** The usage of this many images. */
  usage(count: number): ImagesUsage;
}

/** Brings the first image of an outcome into the format that was asked for: the others are not returned. */
export async function finishImage(
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
export function finishedImages(
  { clock }: Pick<ApiDeps, "clock">,
  asked: AskedImages,
  contents: readonly GeneratedContent[],
): FinishedImages {
  const made = contents.flatMap((content) => content.images.slice(0, 1));
  const [first] = made;
  const [outcome] = contents;
  if (first === undefined || outcome === undefined) throw withoutImage(outcome);
  const { prompt, images: inputs, size } = asked.content;
  return {
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
export async function imagesView(
  deps: ApiDeps,
  finished: FinishedImages,
  { isByUrl }: Pick<AskedImages, "isByUrl">,
  publicUrl: string,
): Promise<Images> {
  const { images, createdAt, usage } = finished;
  const data: Images["data"] = [];
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
export const FRAMING: Framing = {
  type: "text/event-stream",
  opening: ": the images are being made\n\n",
  result: (events) => String(events),
  failure: (error) => event("error", openaiErrorBody(error)),
  end: "",
};

/** An event for each image. */
export function eventsOf(finished: FinishedImages, isEdit: boolean): Buffer {
  const type = isEdit ? "image_edit.completed" : "image_generation.completed";
  const events = finished.images.map((image) => event(type, eventView(type, finished, image)));
  return Buffer.from(events.join(""));
}

function eventView(type: ImageEvent["type"], finished: FinishedImages, { bytes }: FinishedImage): ImageEvent {
  const { createdAt, usage } = finished;
  const image = { b64_json: bytes.toString("base64"), created_at: createdAt };
  return { type, ...image, ...factsOf(finished), usage: usage(1) };
}

const event = (name: string, value: object) => `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`;

function factsOf({ images: [first], size }: FinishedImages) {
  return imageFacts(size, first?.mimeType ?? "image/png");
}

/** The facts of an answer about its images. */
export function imageFacts(
  { widthPx, heightPx }: SizePx,
  mimeType: ImageMimeType,
): Pick<Images, "size" | "quality" | "background" | "output_format"> {
  const format = mimeType.replace("image/", "") as Images["output_format"];
  return { size: `${widthPx}x${heightPx}`, quality: "auto", background: "auto", output_format: format };
}

/** The usage as OpenAI's clients read it. */
export function usageView(usage: ReturnType<typeof usageOf>): ImagesUsage {
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
