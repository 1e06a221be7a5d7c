import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-formats.ts";
import { isDeviceName, replaceForbidden } from "../../kernel/files/file-names.ts";
import { foldFileName, truncateBytes } from "../../kernel/text.ts";
import { IMAGES_FOLDER } from "../directory/names.ts";

/** Gives every file of a run a path of its own below `images/`. */
export interface DiskNames {
  /** Returns a path for a file name, with `/`. `~2`, `~3`, … is added when another file of the run has the name. */
  take(name: string): string;
  /**
   * Returns the path for an image, from `imageFileName` of `stem` (default: its id). The same image gets the same path each
   * time.
   */
  takeImage(customId: string, index: number, type: ImageMimeType, stem?: string): string;
  /** Marks a path of an earlier run as taken. */
  keep(path: string): void;
}

/** File systems take 255 bytes. A temporary name is longer than the final one, and `~2` may be added. */
const MAX_STEM_BYTES = 180;
const MAX_EXTENSION_BYTES = 20;
/** A longer id is cut here, so that the number of the image after it stays. */
const MAX_ID_BYTES = 120;

/** Returns a name that every file system takes, as stem and extension. */
function fitName(name: string): [stem: string, extension: string] {
  const plain = withoutLeadingDots(name).toWellFormed();
  const dot = plain.lastIndexOf(".");
  const [stem, extension] = dot <= 0 ? [plain, ""] : [plain.slice(0, dot), plain.slice(dot)];
  const short = truncateBytes(stem, MAX_STEM_BYTES).replace(/[. ]+$/, "_") || "image";
  const end = truncateBytes(extension, MAX_EXTENSION_BYTES).replace(/[. ]+$/, "");
  return [isDeviceName(short) ? `_${short}` : short, end];
}

function withoutLeadingDots(name: string): string {
  return replaceForbidden(name).replace(/^\.+/, "_");
}

/** Returns the name of an image: the id of its item, its number and its type, whatever the service calls it. */
export function imageFileName(customId: string, index: number, type: ImageMimeType): string {
  // An id of dots alone would run into the dot before the extension.
  const id = truncateBytes(withoutLeadingDots(customId), MAX_ID_BYTES);
  return fitName(`${id}${index === 0 ? "" : `_${index + 1}`}.${IMAGE_EXTENSIONS[type]}`).join("");
}

export function createDiskNames(): DiskNames {
  const taken = new Set<string>();
  /** The number to try next for a name that was taken before. */
  const numbers = new Map<string, number>();
  const images = new Map<string, string>();
  const names: DiskNames = {
    keep: (path) => {
      taken.add(foldFileName(path));
    },
    take: (name) => {
      const [stem, extension] = fitName(name.replace(/^.*\//s, ""));
      let path = `${IMAGES_FOLDER}/${stem}${extension}`;
      const plain = foldFileName(path);
      let number = numbers.get(plain) ?? 2;
      for (; taken.has(foldFileName(path)); number++) path = `${IMAGES_FOLDER}/${stem}~${number}${extension}`;
      numbers.set(plain, number);
      taken.add(foldFileName(path));
      return path;
    },
    takeImage: (customId, index, type, stem = customId) => {
      const image = JSON.stringify([customId, index, type]);
      const path = images.get(image) ?? names.take(imageFileName(stem, index, type));
      images.set(image, path);
      return path;
    },
  };
  return names;
}
