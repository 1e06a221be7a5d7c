import { randomBytes } from "node:crypto";
import type { Stats } from "node:fs";
import { open, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS, type ImageMimeType, typeOfFileName } from "../../contract/image-formats.ts";
import { PARTIAL_SUFFIX } from "../../kernel/files/durable-file.ts";
import { safeFileName } from "../../kernel/files/file-names.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import { truncateBytes } from "../../kernel/text.ts";

/** The target of one image. */
export interface ImageTarget {
  dir: string;
  /** The name as the caller gave it. Null when it is made from the prompt. */
  name: string | null;
  /** The name without its extension. */
  stem: string;
  mayReplace: boolean;
}

const SLUG_BYTES = 60;

/**
 * Reads `--output`: a file, a directory (one that exists, or a name that ends with `/`), or nothing for a file named
 * from the prompt in `cwd`. An existing file, and a target that cannot be written, are refused before anything is sent:
 * an image that was paid for must be saved. Throws `USAGE` and `SAVE_FAILED`.
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
  await saving(dir, () => makeDirectory(dir));
  if (found !== null && !isDirectory) requireReplaceable(found, output ?? "", mayReplace);
  const name = isDirectory ? null : basename(path);
  const stem =
    name === null ? slugOf(prompt) : typeOfFileName(name) === null ? name : name.replace(/\.[^.]*$/, "");
  await saving(path, () => tryToWrite(temporaryPath(dir, stem)));
  return { dir, name, stem, mayReplace };
}

function requireReplaceable(found: Stats, output: string, mayReplace: boolean): void {
  const problem = !found.isFile()
    ? "is not a regular file"
    : mayReplace
      ? null
      : "exists already: --force replaces it";
  if (problem === null) return;
  throw new ImgbatchError("USAGE", `${output} ${problem}. Nothing was sent.`, { param: "--output" });
}

/** The path at which an image of this name is written until it is complete. */
export function temporaryPath(dir: string, stem: string): string {
  return join(dir, `.${stem}.${randomBytes(6).toString("hex")}${PARTIAL_SUFFIX}`);
}

/** Writes a file and removes it. Permissions prove nothing: a file system may refuse every write, or only this name. */
export async function tryToWrite(path: string): Promise<void> {
  const file = await open(path, "wx");
  await file.close();
  await rm(path, { force: true });
}

/** Yields the paths that an image of this type may get, best first. The given name is used when its ending fits the type. */
export function* pathsFor({ dir, name, stem }: ImageTarget, mimeType: ImageMimeType): Generator<string> {
  const extension = IMAGE_EXTENSIONS[mimeType];
  const isTrue = name !== null && typeOfFileName(name) === mimeType;
  yield join(dir, isTrue ? name : `${stem}.${extension}`);
  for (let n = 2; ; n++) yield join(dir, `${stem}-${n}.${extension}`);
}

function slugOf(prompt: string): string {
  const words = prompt.toLowerCase().replace(/[^\p{L}\p{N}\p{M}]+/gu, "-");
  const slug = truncateBytes(words.replace(/^-+/, ""), SLUG_BYTES).replace(/-+$/, "");
  return safeFileName(slug || "image");
}
