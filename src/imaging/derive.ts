import type { Sharp } from "sharp";
import {
  type DigitalSource,
  enlargementOf,
  type FileForm,
  type FileFormat,
  type ImageMimeType,
  type SizePx,
  sidesOf,
} from "../contract/image-formats.ts";
import { DECODE_SECONDS, Decoding } from "./decoding.ts";
import { addXmp, hasCredentials, xmpOf } from "./picture-metadata.ts";

/** A file that was made of a picture. */
interface Derived {
  bytes: Buffer;
  widthPx: number;
  heightPx: number;
  /** The picture has fewer pixels than the file. */
  isEnlarged: boolean;
  /** The content credentials of the picture are not in the file. */
  losesCredentials: boolean;
}

/** The files of a process wait for each other: together they take no more memory than this allows. */
const decoding = new Decoding();

/** The encode quality of files whose lines name none. */
const QUALITIES: Record<Exclude<FileFormat, "png">, number> = { jpeg: 85, webp: 82, avif: 55 };
const FORMATS: Record<ImageMimeType, FileFormat> = {
  "image/png": "png",
  "image/jpeg": "jpeg",
  "image/webp": "webp",
};

/**
 * Makes a file of a picture: the same bytes for the same picture and form, with one version of the image library. Where nothing
 * but the metadata changes, the pixels are not encoded again. `source`: the kind that the file says it is of; null for nothing
 * said. Throws `InvalidImageError` for bytes that are no picture.
 */
export async function deriveFile(
  original: Buffer,
  form: FileForm,
  source: DigitalSource | null,
): Promise<Derived> {
  const { sharp } = await import("./sharp-config.ts");
  const limits = { maxPixels: Number.POSITIVE_INFINITY };
  return decoding.decode(original, limits, async (decodable, { mimeType }) => {
    const open = () =>
      sharp(decodable, { limitInputPixels: false }).autoOrient().timeout({ seconds: DECODE_SECONDS });
    const { autoOrient: shown } = await open().metadata();
    const size = { widthPx: shown.width, heightPx: shown.height };
    const hasOwn = hasCredentials(original, mimeType);
    if (isSame(form, size, mimeType)) {
      const bytes = source === null ? original : addXmp(original, mimeType, size, xmpOf(source));
      return { bytes, ...size, isEnlarged: false, losesCredentials: hasOwn && source !== null };
    }
    const trimmed = form.trim ? await trim(open()) : null;
    const image = trimmed === null ? open() : sharp(trimmed.data, { raw: trimmed.info });
    const cut = trimmed === null ? size : { widthPx: trimmed.info.width, heightPx: trimmed.info.height };
    const encoded = encode(resize(image, form), form, source);
    const { data, info } = await encoded.toBuffer({ resolveWithObject: true });
    const made = { widthPx: info.width, heightPx: info.height };
    const isMarkedBehind = form.format === "png" && source !== null;
    const bytes = isMarkedBehind ? addXmp(data, "image/png", made, xmpOf(source)) : data;
    return { bytes, ...made, isEnlarged: enlargementOf(cut, form) > 1, losesCredentials: hasOwn };
  });
}

/** Whether a form asks for a picture as it is. */
function isSame(form: FileForm, { widthPx, heightPx }: SizePx, mimeType: ImageMimeType): boolean {
  if (form.format !== FORMATS[mimeType] || form.trim || form.encode_quality !== undefined) return false;
  const wanted = sidesOf(form.pixels ?? "x");
  return (wanted.widthPx ?? widthPx) === widthPx && (wanted.heightPx ?? heightPx) === heightPx;
}

/** Cuts the flat or transparent border off. A picture that is flat all over stays as it is. */
async function trim(image: Sharp) {
  const { data, info } = await image.trim().raw().toBuffer({ resolveWithObject: true });
  const { width, height, channels } = info;
  return { data, info: { width, height, channels } };
}

function resize(image: Sharp, { pixels, fit = "cover", position, format }: FileForm): Sharp {
  if (pixels === undefined) return image;
  const { widthPx, heightPx } = sidesOf(pixels);
  const background = format === "jpeg" ? WHITE : CLEAR;
  const usual = fit === "cover" ? "attention" : "center";
  const isBox = widthPx !== null && heightPx !== null;
  return image.resize(widthPx, heightPx, isBox ? { fit, position: position ?? usual, background } : {});
}

const WHITE = "#ffffff";
const CLEAR = { r: 0, g: 0, b: 0, alpha: 0 };

function encode(image: Sharp, { format, encode_quality }: FileForm, source: DigitalSource | null): Sharp {
  // The library writes the XMP of a PNG into another chunk than readers look at.
  if (format === "png") return image.png();
  const quality = encode_quality ?? QUALITIES[format];
  const marked = source === null ? image : image.withXmp(xmpOf(source));
  switch (format) {
    case "jpeg":
      return marked.flatten({ background: WHITE }).jpeg({ quality });
    case "webp":
      return marked.webp({ quality });
    case "avif":
      return marked.avif({ quality });
  }
}
