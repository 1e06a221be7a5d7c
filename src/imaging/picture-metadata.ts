import type { ImageMimeType, SizePx } from "../contract/image-formats.ts";
import { addExifToJpeg, addExifToWebp } from "./add-exif.ts";
import { exifBlock } from "./exif.ts";
import { addPngText } from "./png-text.ts";

/** The facts about the making of a picture that are written into its file. */
export interface PictureMetadata {
  /** The program that made it, and what kind of picture that is. */
  software: string;
  prompt: string;
  /** The names and values of the settings line, in this order. A null is left out. */
  settings: Readonly<Record<string, string | number | null>>;
  /** Goes as JSON into the program's own chunk; PNG only. */
  details: Record<string, unknown>;
}

/**
 * Writes the metadata into an encoded picture: text chunks of a PNG, EXIF of JPEG and WebP. The settings are in the
 * form that image viewers and prompt readers know: the prompt, then one line of `Name: value` pairs.
 */
export function addMetadata(
  image: Buffer,
  mimeType: ImageMimeType,
  size: SizePx,
  metadata: PictureMetadata,
): Buffer {
  if (mimeType === "image/png") {
    return addPngText(image, [
      ["parameters", parametersText(metadata)],
      ["Software", metadata.software],
      ["imgbatch", JSON.stringify(metadata.details)],
    ]);
  }
  const exif = exifBlock({
    software: metadata.software,
    description: beginning(metadata.prompt, MAX_DESCRIPTION),
    comment: parametersText({ ...metadata, prompt: beginning(metadata.prompt, MAX_COMMENT) }),
  });
  return mimeType === "image/jpeg" ? addExifToJpeg(image, exif) : addExifToWebp(image, exif, size);
}

/** A JPEG takes 64 KiB of EXIF. A prompt of this many UTF-16 units always leaves space for the rest. */
const MAX_COMMENT = 16_000;
const MAX_DESCRIPTION = 2000;

function beginning(text: string, units: number): string {
  if (text.length <= units) return text;
  return `${text.slice(0, units - 1).replace(/[\ud800-\udbff]$/, "")}…`;
}

function parametersText({ prompt, settings }: Pick<PictureMetadata, "prompt" | "settings">): string {
  const pairs = Object.entries(settings).flatMap(([name, value]) =>
    value === null ? [] : [`${name}: ${String(value).replaceAll(/[,\s]+/g, " ")}`],
  );
  return `${prompt}\n${pairs.join(", ")}`;
}
