import type { ImgbatchError } from "../../../contract/errors.ts";
import { isImageMimeType, type SizePx } from "../../../contract/image-formats.ts";
import type { Limits } from "../../../contract/limits.ts";
import type { GenerateContentRequest } from "../../../contract/native-api.ts";
import type { FindFileImage } from "../../../domain/files/files.ts";
import { receiveImage } from "../../../domain/images/base64-image.ts";
import type { SentTexts } from "../../../domain/images/sent-image.ts";
import type { ImageInspector } from "../../../domain/ports/image-inspector.ts";
import type { CheckedImage } from "../../../domain/realtime/checked-content.ts";
import { MAX_INPUT_IMAGES } from "../../../domain/realtime/models.ts";
import { formatBytes } from "../../../kernel/text.ts";
import { ImageChecker, type ReceivedImage } from "../../input-images.ts";
import { fieldError } from "../../request-problems.ts";

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
