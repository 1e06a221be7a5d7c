import type { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { EditImages } from "../../contract/openai-api.ts";
import type { FindFileImage } from "../../domain/files/files.ts";
import { receiveImage } from "../../domain/images/base64-image.ts";
import { NO_SENT_TEXTS, type SentImage, type SentTexts } from "../../domain/images/sent-image.ts";
import { dataUrlHead } from "../../kernel/base64.ts";
import { formatBytes } from "../../kernel/text.ts";
import type { ReceivedImage } from "../input-images.ts";
import { fieldError } from "../request-problems.ts";

const { editImages, editImageBytes } = FIXED_LIMITS;
const TOO_LARGE = `is larger than ${formatBytes(editImageBytes)}`;
const NO_DATA_URL =
  "must be a data URL such as data:image/png;base64,…: nothing is fetched from other addresses";

/** The images of an edit that came as JSON. Throws `REALTIME_INVALID_ARGUMENT`. */
export async function imagesOfJson(
  { images }: EditImages,
  sent: SentTexts,
  findFile: FindFileImage,
): Promise<ReceivedImage[]> {
  if (images.length > editImages) throw tooManyImages(images.length, editImages);
  const received: ReceivedImage[] = [];
  for (const [i, { image_url: url, file_id: id }] of images.entries()) {
    const at = `images[${i}]`;
    if ((url == null) === (id == null)) throw invalid(at, "must have one of image_url and file_id");
    if (url != null) received.push(receivedImage(imageOfUrl(url, `${at}.image_url`, sent), at));
    else received.push(receivedImage(await imageOfFile(id ?? "", `${at}.file_id`, findFile), at));
  }
  return received;
}

function imageOfUrl(url: string, at: string, sent: SentTexts): SentImage {
  const long = sent.get(url)?.content;
  if (long === "too large") throw invalid(at, TOO_LARGE);
  const head = dataUrlHead(url);
  if (long === "no Base64" || (long === undefined && head === null)) throw invalid(at, NO_DATA_URL);
  if (long !== undefined) return long;
  const rules = { maxBytes: editImageBytes, base64: "lenient", sent: NO_SENT_TEXTS } as const;
  const image = receiveImage(url.slice(head ?? 0), rules);
  if (typeof image === "string") throw invalid(at, image);
  return image;
}

async function imageOfFile(id: string, at: string, findFile: FindFileImage): Promise<SentImage> {
  const image = await findFile(id);
  if (image === null) throw invalid(at, "must be the id of a file that was uploaded with this key");
  if (image.sizeBytes > editImageBytes) throw invalid(at, TOO_LARGE);
  return image;
}

/** An image whose type its bytes decide. `at` is the field that it came in. */
export function receivedImage(image: SentImage, at: string): ReceivedImage {
  return { image, declared: null, fields: { type: at, bytes: at, amount: at } };
}

export function tooManyImages(count: number, limit: number): ImgbatchError {
  return invalid("image", `${count} images were sent; at most ${limit} are allowed`);
}

export function refuseMask(): ImgbatchError {
  return invalid("mask", "is not supported: say in the prompt what is to change, and where");
}

const invalid = (param: string, problem: string) => fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
