import type { ImgbatchError } from "../../contract/errors.ts";
import { type ImageMimeType, isImageMimeType, type SizePx } from "../../contract/image-formats.ts";
import type { Limits } from "../../contract/limits.ts";
import type { GenerateContentRequest } from "../../contract/native-api.ts";
import type { FindFileImage } from "../../domain/files/files.ts";
import {
  type InputImageProblem,
  InputImages,
  receiveImage,
  type SentImage,
  type SentTexts,
  shownSize,
} from "../../domain/images/sent-image.ts";
import { MAX_INPUT_IMAGES } from "../../domain/models.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import type { CheckedImage } from "../../domain/realtime/checked-content.ts";
import { formatBytes, isLongerThan, truncateCodePoints } from "../../kernel/text.ts";
import { fieldError } from "../http/errors.ts";

/** An image of a request before its bytes were looked into. `fields`: where each kind of problem belongs. */
export interface ReceivedImage {
  image: SentImage;
  /** The declared type; null when it does not matter. */
  declared: ImageMimeType | null;
  fields: Record<InputImageProblem["about"], string>;
}

/** Looks into the input images of one real-time request, in their order. */
export class ImageChecker {
  readonly images: CheckedImage[] = [];
  /** The size of the first one, as it is shown; null before it. */
  first: SizePx | null = null;
  readonly #inputs: InputImages;

  constructor(inspector: ImageInspector) {
    this.#inputs = new InputImages(inspector);
  }

  /** Throws `REALTIME_INVALID_ARGUMENT`. */
  async add({ image, declared, fields }: ReceivedImage): Promise<void> {
    const facts = await this.#inputs.check(image, declared);
    if ("problem" in facts) {
      throw fieldError("REALTIME_INVALID_ARGUMENT", fields[facts.about], facts.problem);
    }
    this.images.push({
      read: () => image.read(),
      lend: (work) => image.lend(work),
      keepAs: (blobs, key) => image.keepAs(blobs, key),
      sha256: image.sha256,
      mimeType: facts.mimeType,
    });
    this.first ??= shownSize(facts);
  }
}

type Contents = GenerateContentRequest["contents"];

/** Messages of the user without a message of the model between them. */
interface Turn {
  /** The index of its first message. */
  start: number;
  text: string;
}

/** An absent role is the user's. */
export const isFromUser = ({ role }: Contents[number]): boolean => role !== "model";

/**
 * The texts of a conversation. `prompt` is the user's last turn with a text; the limit on prompts applies to it alone.
 * `earlier` has the turns before, cut to the same length: the oldest are dropped first.
 * Throws `REALTIME_INVALID_ARGUMENT` when there is no text, or too much of it.
 */
export function readTurns(
  contents: Contents,
  { promptChars }: Pick<Limits, "promptChars">,
): { prompt: string; earlier: string } {
  const turns = turnsOf(contents);
  const spoken = turns.filter(({ text }) => text !== "");
  const last = spoken.pop();
  if (last === undefined) {
    const at = `contents[${turns[0]?.start ?? 0}].parts`;
    throw fieldError("REALTIME_INVALID_ARGUMENT", at, "need a text: what to draw, or how to edit");
  }
  if (isLongerThan(last.text, promptChars)) {
    const problem = `the text has more than the ${promptChars} characters that are allowed`;
    throw fieldError("REALTIME_INVALID_ARGUMENT", `contents[${last.start}].parts`, problem);
  }
  return { prompt: last.text, earlier: newest(spoken, promptChars) };
}

function turnsOf(contents: Contents): Turn[] {
  const turns: { start: number; texts: string[] }[] = [];
  contents.forEach((message, i) => {
    if (!isFromUser(message)) return;
    const previous = contents[i - 1];
    if (previous === undefined || !isFromUser(previous)) turns.push({ start: i, texts: [] });
    for (const { text } of message.parts ?? []) {
      if (text != null && text.trim() !== "") turns.at(-1)?.texts.push(text.trim());
    }
  });
  return turns.map(({ start, texts }) => ({ start, text: texts.join("\n") }));
}

/** Whole turns, as many of the newest as fit. */
function newest(turns: readonly Turn[], maxChars: number): string {
  let earlier = "";
  for (const { text } of turns.toReversed()) {
    const longer = earlier === "" ? text : `${text}\n${earlier}`;
    if (isLongerThan(longer, maxChars)) return earlier || truncateCodePoints(text, maxChars);
    earlier = longer;
  }
  return earlier;
}

interface Rules {
  limits: Limits;
  inspector: ImageInspector;
  sent: SentTexts;
  /** False: the declared types of the images are ignored. */
  strictImageConfig: boolean;
  findFileImage: FindFileImage;
}

/**
 * The input images in their order, of all messages: an image that the model made earlier can be the one to edit.
 * Interim images of a model that thinks are left out. `first` is the size of the first one.
 */
export async function readImages(
  contents: GenerateContentRequest["contents"],
  rules: Rules,
): Promise<{ images: CheckedImage[]; first: SizePx | null }> {
  const found = contents.flatMap(({ parts }, i) =>
    (parts ?? []).flatMap((part, j) => {
      const at = `contents[${i}].parts[${j}]`;
      const { inlineData, fileData, text } = part;
      if ((inlineData == null && fileData == null) || part.thought === true) return [];
      const given = [text, inlineData, fileData].filter((field) => field != null);
      if (given.length > 1) throw invalid(at, "must be one of text, inlineData and fileData");
      return [{ at, inlineData, fileData }];
    }),
  );
  if (found.length > MAX_INPUT_IMAGES) {
    const problem = `have ${found.length} input images; at most ${MAX_INPUT_IMAGES} are allowed`;
    throw invalid("contents", problem);
  }
  const checker = new ImageChecker(rules.inspector);
  for (const part of found) await checker.add(await receive(part, rules));
  return checker;
}

type Part = NonNullable<GenerateContentRequest["contents"][number]["parts"]>[number];

async function receive(
  { at, inlineData, fileData }: Pick<Part, "inlineData" | "fileData"> & { at: string },
  rules: Rules,
): Promise<ReceivedImage> {
  if (inlineData != null) return receiveInline(`${at}.inlineData`, inlineData, rules);
  const field = `${at}.fileData.fileUri`;
  const image = await rules.findFileImage(fileData?.fileUri ?? "");
  if (image === null) throw invalid(field, "must be the uri of a file that was uploaded with this key");
  const max = rules.limits.referenceImageBytes;
  if (image.sizeBytes > max) throw invalid(field, `is larger than ${formatBytes(max)}`);
  return { image, declared: null, fields: { type: field, bytes: field, amount: at } };
}

function receiveInline(at: string, given: NonNullable<Part["inlineData"]>, rules: Rules): ReceivedImage {
  const { mimeType, data } = given;
  const declared = rules.strictImageConfig ? mimeType : null;
  if (declared !== null && !isImageMimeType(declared)) {
    throw invalid(`${at}.mimeType`, "must be image/png, image/jpeg or image/webp");
  }
  if (data === "") throw invalid(`${at}.data`, "is required: the Base64 of the image");
  const maxBytes = rules.limits.referenceImageBytes;
  const image = receiveImage(data, { maxBytes, base64: "lenient", sent: rules.sent });
  if (typeof image === "string") throw invalid(`${at}.data`, image);
  return { image, declared, fields: { type: `${at}.mimeType`, bytes: `${at}.data`, amount: at } };
}

function invalid(param: string, problem: string): ImgbatchError {
  return fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
}
