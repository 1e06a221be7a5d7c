import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/images/image-types.ts";
import { foldFileName, truncateBytes } from "../../kernel/text.ts";
import { IMAGES_FOLDER } from "../directory/claim.ts";

/** Gives every file of a run a path of its own below `images/`. */
export interface DiskNames {
  /** The path for a file name, with `/`: `~2`, `~3`, … when another file of the run has the name. */
  take(name: string): string;
  /** The path for an image, from `imageFileName`; the same image gets the same one each time. */
  takeImage(customId: string, index: number, type: ImageMimeType): string;
  /** Marks a path of an earlier run as taken. */
  keep(path: string): void;
}

/** File systems take 255 bytes; a temporary name is longer than the final one, and `~2` needs its place too. */
const MAX_STEM_BYTES = 180;
const MAX_EXTENSION_BYTES = 20;
/** So much of an id, so that the number of an image stays when a long one is cut. */
const MAX_ID_BYTES = 120;

/** Windows opens a device under these names, whatever the extension. */
const DEVICE = /^(con|prn|aux|nul|com[0-9\u00b9\u00b2\u00b3]|lpt[0-9\u00b9\u00b2\u00b3])$/i;

/** A name that every file system takes, as stem and extension. */
function fitName(name: string): [stem: string, extension: string] {
  const plain = name
    .replace(/[\p{Cc}/\\:*?"<>|]/gu, "_")
    .replace(/^\.+/, "_")
    .toWellFormed();
  const dot = plain.lastIndexOf(".");
  const [stem, extension] = dot <= 0 ? [plain, ""] : [plain.slice(0, dot), plain.slice(dot)];
  const short = truncateBytes(stem, MAX_STEM_BYTES).replace(/[. ]+$/, "_") || "image";
  // `nul.v2.png` is the device too: what counts ends at the first dot.
  const isDevice = DEVICE.test((short.split(".")[0] ?? "").trimEnd());
  return [
    isDevice ? `_${short}` : short,
    truncateBytes(extension, MAX_EXTENSION_BYTES).replace(/[. ]+$/, ""),
  ];
}

/** How an image is called, whatever its service calls it: by the id of its item, its number and its type. */
export function imageFileName(customId: string, index: number, type: ImageMimeType): string {
  // Dots alone would run into the one before the extension.
  const plain = customId.replace(/[\p{Cc}/\\:*?"<>|]/gu, "_").replace(/^\.+/, "_");
  const id = truncateBytes(plain, MAX_ID_BYTES);
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
    takeImage: (customId, index, type) => {
      const image = JSON.stringify([customId, index, type]);
      const path = images.get(image) ?? names.take(imageFileName(customId, index, type));
      images.set(image, path);
      return path;
    },
  };
  return names;
}
