import { randomBytes } from "node:crypto";
import type { Stats } from "node:fs";
import { link, open, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { isSystemError, saving } from "../client/file-errors.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { IMAGE_EXTENSIONS, type ImageMimeType, typeOfFileName } from "../contract/image-formats.ts";
import { makeDirectory, PARTIAL_SUFFIX, syncDirectory } from "../kernel/files.ts";
import { safeFileName, truncateBytes } from "../kernel/text.ts";
import { NOTHING_KNOWN, type ResultFile, writeVerified } from "./directory/run-files.ts";

/** The target of one image. */
interface ImageTarget {
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
  if (found !== null && !isDirectory) requireReplaceable(found, output ?? "", mayReplace);
  const name = isDirectory ? null : basename(path);
  const stem =
    name === null ? slugOf(prompt) : typeOfFileName(name) === null ? name : name.replace(/\.[^.]*$/, "");
  await requireWritable(dir, stem, path);
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

/**
 * Makes a folder if it is missing, and writes and removes a file like one of this name: permissions prove nothing, as a
 * file system may refuse every write, or only this name. Throws `SAVE_FAILED`, which names `shown`.
 */
export async function requireWritable(dir: string, stem: string, shown = dir): Promise<void> {
  await saving(dir, () => makeDirectory(dir));
  const path = join(dir, `.${stem}.${randomBytes(6).toString("hex")}${PARTIAL_SUFFIX}`);
  await saving(shown, async () => {
    await (await open(path, "wx")).close();
    await rm(path, { force: true });
  });
}

/** Yields possible paths for an image of this type, the best first. A given name comes first if its ending fits the type. */
function* pathsFor({ dir, name, stem }: ImageTarget, mimeType: ImageMimeType): Generator<string> {
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

interface SavedImage {
  /** Absolute. */
  path: string;
  facts: Omit<ResultFile, "path">;
}

/**
 * Saves an image unchanged under the first of its names that is free. Only the exact name that the caller gave may be
 * replaced, and only if `mayReplace`. The image is on disk when this resolves, and absent when it fails.
 */
export async function saveImage(
  target: ImageTarget,
  data: Buffer,
  mimeType: ImageMimeType,
): Promise<SavedImage> {
  const temporary = join(target.dir, `.${randomBytes(6).toString("hex")}`);
  const name = target.name ?? target.stem;
  return saving(join(target.dir, name), async () => {
    try {
      const { file } = await writeVerified([data], temporary, NOTHING_KNOWN, name);
      const path = await place(temporary, target, mimeType);
      await syncDirectory(target.dir);
      return { path, facts: file };
    } finally {
      await rm(temporary, { force: true });
    }
  });
}

async function place(temporary: string, target: ImageTarget, mimeType: ImageMimeType): Promise<string> {
  for (const path of pathsFor(target, mimeType)) {
    if (target.mayReplace && basename(path) === target.name) {
      await rename(temporary, path);
      return path;
    }
    if (await moveIfFree(temporary, path)) return path;
  }
  throw new Error(`no free name in ${dirname(temporary)}`);
}

/** Uses a hard link, which fails when the name is taken. Some file systems have none; there the file is renamed. */
async function moveIfFree(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    if (error.code === "EEXIST") return false;
    if (!["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"].includes(error.code)) throw error;
    if ((await stat(to).catch(() => null)) !== null) return false;
    await rename(from, to);
    return true;
  }
}
