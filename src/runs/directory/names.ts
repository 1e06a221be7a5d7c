import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-formats.ts";
import { isGeneratedId } from "../../contract/limits.ts";
import {
  foldFileName,
  isDeviceName,
  replaceForbidden,
  safeFileName,
  truncateBytes,
  truncateCodePoints,
} from "../../kernel/text.ts";

/** The names of files and folders that a run makes in its directory. */
export const INPUT_FILE = "input.jsonl";
export const IMAGES_FOLDER = "images";
export const REFERENCES_FOLDER = "references";
/**
 * Earlier pictures, with their results: those that were made again, and those of changed and removed prompts. Also images as an
 * upstream sent them, where those in `images/` are converted.
 */
export const VERSIONS_FOLDER = "versions";
/** What a person decided about the pictures, and what a look at them found. */
export const REVIEW_FILE = "review.jsonl";
export const CHECKS_FILE = "checks.jsonl";
/** The record of the files that were made of pictures where their lines want them. */
export const FILES_FILE = "files.jsonl";

/** Gives every file of a run a path of its own below `images/`. */
interface DiskNames {
  /** Returns a path for a file name, with `/`. `~2`, `~3`, … is added when another file of the run has the name. */
  take(name: string): string;
  /**
   * Returns the path for an image, from `imageFileName` of `stem` (default: its id). The same image gets the same path each
   * time.
   */
  takeImage(customId: string, index: number, type: ImageMimeType, stem?: string): string;
  /** Marks a path of an earlier run as taken. */
  keep(path: string): void;
  /** Frees a path whose file was moved away. */
  free(path: string): void;
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
    free: (path) => {
      taken.delete(foldFileName(path));
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

/**
 * How the files of a run are named: by the id alone (`id`), by the id and the words of the prompt (`words`), or with words
 * where the id is a number (`auto`).
 */
export const NAMINGS = ["id", "words", "auto"] as const;
export type Naming = (typeof NAMINGS)[number];

const MOST_MODEL_CHARS = 40;

/** Returns the end of the ids of images of another model than that of the run. */
export function modelEnd(model: string): string {
  return `-${safeFileName(truncateCodePoints(model, MOST_MODEL_CHARS))}`;
}

/** The parts of an input line that a name depends on. */
interface Asked {
  prompt: string;
  model?: string | undefined;
  source?: { id?: string | undefined } | undefined;
}

/** The longest name, without its extension: names stay readable in a list. */
const MAX_CHARS = 55;
/** Fewer characters of words than this say nothing. */
const LEAST_CHARS = 3;

/** Returns the name of an image without its extension, such as `item_000001-red-fox`. */
export function imageStem(id: string, naming: Naming, asked: Asked | undefined): string {
  const plain = id.replace(/_\d\d$/, "").replace(asked?.model === undefined ? "" : modelEnd(asked.model), "");
  const hasOwnId = asked?.source?.id !== undefined || !isGeneratedId(plain);
  if (asked === undefined || naming === "id" || (naming === "auto" && hasOwnId)) return id;
  const words = asciiWords(asked.prompt);
  const left = MAX_CHARS - id.length - 1;
  const short = words.length <= left ? words : words.slice(0, Math.max(0, left + 1)).replace(/-?[^-]*$/, "");
  return short.length < LEAST_CHARS ? id : `${id}-${short}`;
}

/** The beginning of a prompt that is long enough for any name. */
const READ_CHARS = 400;

/** Returns the words of a prompt in plain letters and digits, joined by `-`. Empty for scripts without such letters. */
function asciiWords(prompt: string): string {
  return prompt
    .slice(0, READ_CHARS)
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replaceAll("ß", "ss")
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-?(?:(?:an?|the)-)?/, "")
    .replace(/-+$/, "");
}
