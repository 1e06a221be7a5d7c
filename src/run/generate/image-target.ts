import { access, constants, mkdir, stat } from "node:fs/promises";
import { basename, dirname, extname, join, resolve } from "node:path";
import { saving } from "../../client/saving.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-types.ts";
import { cutToBytes, safeFileName } from "../../kernel/file-names.ts";

/** Where one image shall go. */
export interface ImageTarget {
  dir: string;
  /** The name as the caller gave it; null when it is made from the prompt. */
  name: string | null;
  /** The name without its extension. */
  stem: string;
  mayReplace: boolean;
}

const SLUG_BYTES = 60;
/** Names that an image can have already; any other ending belongs to the name. */
const IMAGE_NAME = /\.(png|jpe?g|webp)$/i;

/**
 * Reads `--output`: a file, a directory (one that exists, or a name that ends with `/`), or nothing for a file named
 * from the prompt in `cwd`. Refuses, before anything is sent, a file that is there and what cannot be written: an image
 * that was paid for must find its place. Throws `USAGE` and `SAVE_FAILED`.
 * Rules: GEN-8, GEN-9.
 */
export async function chooseTarget(
  output: string | null,
  prompt: string,
  { cwd, mayReplace }: { cwd: string; mayReplace: boolean },
): Promise<ImageTarget> {
  const path = resolve(cwd, output ?? ".");
  const found = await stat(path).catch(() => null);
  const isDirectory = output === null || /[/\\]$/.test(output) || found?.isDirectory() === true;
  const dir = isDirectory ? path : dirname(path);
  await saving(dir, () => mkdir(dir, { recursive: true }));
  await saving(dir, () => access(dir, constants.W_OK | constants.X_OK));
  if (isDirectory) return { dir, name: null, stem: slugOf(prompt), mayReplace };
  if (found !== null && !mayReplace) {
    throw new ImgbatchError("USAGE", `${output} is there already: --force replaces it. Nothing was sent.`, {
      param: "--output",
    });
  }
  const name = basename(path);
  return { dir, name, stem: name.replace(IMAGE_NAME, ""), mayReplace };
}

/** The paths that an image of this type may get, best first: the name as it was given when its ending is true. */
export function* pathsFor({ dir, name, stem }: ImageTarget, mimeType: ImageMimeType): Generator<string> {
  const extension = IMAGE_EXTENSIONS[mimeType];
  const isTrue = name !== null && typeOfName(name) === extension;
  yield join(dir, isTrue ? name : `${stem}.${extension}`);
  for (let n = 2; ; n++) yield join(dir, `${stem}-${n}.${extension}`);
}

function typeOfName(name: string): string {
  return extname(name).slice(1).toLowerCase().replace("jpeg", "jpg");
}

function slugOf(prompt: string): string {
  const words = prompt.toLowerCase().replace(/[^\p{L}\p{N}\p{M}]+/gu, "-");
  const slug = cutToBytes(words.replace(/^-+/, ""), SLUG_BYTES).replace(/-+$/, "");
  return safeFileName(slug || "image");
}
