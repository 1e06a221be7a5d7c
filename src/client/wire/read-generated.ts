import { z } from "zod";
import { ImgbatchError } from "../../contract/errors.ts";
import { type ImageMimeType, sniffImageType } from "../../contract/image-formats.ts";
import { missingEnd } from "../../contract/image-structure.ts";
import { REFUSING_FINISH_REASONS } from "../../contract/statuses.ts";
import { truncateCodePoints } from "../../kernel/text.ts";

/** Other services leave out fields or send null. A missing field is null. */
const text = z.string().nullish().catch(null);

const partSchema = z.looseObject({
  text,
  thought: z.boolean().nullish().catch(null),
  inlineData: z.looseObject({ mimeType: text, data: text }).nullish().catch(null),
});

const answerSchema = z.looseObject({
  candidates: z
    .array(
      z.looseObject({
        content: z
          .looseObject({ parts: z.array(partSchema).nullish().catch(null) })
          .nullish()
          .catch(null),
        finishReason: text,
        finishMessage: text,
      }),
    )
    .nullish()
    .catch(null),
  promptFeedback: z.looseObject({ blockReason: text, blockReasonMessage: text }).nullish().catch(null),
  usageMetadata: z.unknown().optional(),
  modelVersion: text,
});
type Answer = z.infer<typeof answerSchema>;

/** The main image of an answer. */
export interface ReadImage {
  data: Buffer;
  /** Found from the bytes, not from the answer's claim. */
  mimeType: ImageMimeType;
  /** Null when the service did not say which model ran. */
  modelVersion: string | null;
  /** The text of the model beside the image; empty for none. */
  text: string;
  /** Token counts, as they came. */
  usage: unknown;
  /** Images of the answer besides the main one. */
  furtherImages: number;
}

const SHOWN_TEXT = 300;

/**
 * Returns the main image of an answer of 2xx. Interim images of a thinking model do not count. Throws `IMAGE_REFUSED` and
 * `NO_IMAGES` with the reason that the service gave.
 */
export function readGenerated(json: unknown, requestId: string | undefined): ReadImage {
  const parsed = answerSchema.safeParse(json);
  const answer: Answer = parsed.success ? parsed.data : {};
  const candidates = answer.candidates ?? [];
  const parts = candidates
    .flatMap((candidate) => candidate.content?.parts ?? [])
    .filter((part) => part.thought !== true);
  const [first, ...further] = parts.flatMap((part) => part.inlineData?.data || []);
  const said = parts
    .flatMap((part) => part.text || [])
    .join(" ")
    .trim();
  if (first === undefined) throw withoutImage(answer, said, requestId);
  const data = decodeBase64(first);
  if (data === null) throw noImage("the Base64 of the image does not decode", requestId);
  const mimeType = sniffImageType(data);
  if (mimeType === null) throw noImage("the image is neither PNG, JPEG nor WebP", requestId);
  const missing = missingEnd(data, mimeType);
  if (missing !== null) throw noImage(`the image is not whole: ${missing}`, requestId);
  return {
    data,
    mimeType,
    modelVersion: answer.modelVersion ?? null,
    text: said,
    usage: answer.usageMetadata ?? null,
    furtherImages: further.length,
  };
}

function withoutImage(answer: Answer, said: string, requestId: string | undefined): ImgbatchError {
  const blocked = answer.promptFeedback?.blockReason;
  if (blocked)
    return refused(`the prompt (${blocked})`, answer.promptFeedback?.blockReasonMessage, requestId);
  const candidate = (answer.candidates ?? []).find((each) => each.finishReason) ?? answer.candidates?.[0];
  if (candidate === undefined) return noImage("the answer has no candidates", requestId);
  const reason = candidate.finishReason ?? "no finish reason";
  if (REFUSING_FINISH_REASONS.some((refusing) => refusing === reason)) {
    return refused(`to make this image (${reason})`, candidate.finishMessage ?? said, requestId);
  }
  return noImage(withWords(reason, candidate.finishMessage ?? said), requestId);
}

function refused(what: string, words: string | null | undefined, requestId: string | undefined) {
  return new ImgbatchError("IMAGE_REFUSED", `The service refused ${withWords(what, words)}.`, { requestId });
}

function noImage(why: string, requestId: string | undefined): ImgbatchError {
  return new ImgbatchError("NO_IMAGES", `The service answered without a usable image: ${why}.`, {
    requestId,
  });
}

function withWords(what: string, words: string | null | undefined): string {
  if (!words) return what;
  return `${what}: ${truncateCodePoints(words.trim(), SHOWN_TEXT, "…").replace(/\.$/, "")}`;
}

/** Takes either alphabet, with or without padding. Null for other text. */
function decodeBase64(base64: string): Buffer | null {
  if (/[^A-Za-z0-9+/_=-]/.test(base64)) return null;
  // A pattern that looks for padding at the end needs quadratic time for a long row of it.
  let digits = base64.length;
  while (base64[digits - 1] === "=") digits--;
  const data = Buffer.from(base64, "base64");
  return digits % 4 !== 1 && data.length === Math.floor((digits * 3) / 4) ? data : null;
}
