import { constants } from "node:fs";
import { type FileHandle, open, readdir, realpath } from "node:fs/promises";
import { join, resolve, sep } from "node:path";
import { sniffImageType } from "../../contract/image-formats.ts";
import { type LargeImage, ProviderError } from "../../domain/ports/image-provider.ts";
import { formatBytes } from "../../kernel/text.ts";
import type { AnswerImages } from "../upstream/answer-images.ts";
import { upstreamWords } from "../upstream/words.ts";

const MAX_FILES = 16;
const MAX_FILE_BYTES = 64 * 1024 * 1024;
/** Files are read in pieces of this size. */
const PIECE_BYTES = 1024 * 1024;
/** The bytes that show the type of an image. */
const HEAD_BYTES = 12;

export interface Outputs {
  images: (Buffer | LargeImage)[];
  notes: string[];
}

/**
 * Reads the files that the program has named, in its order, at most 16. Each must be a regular file inside the directory,
 * with all links followed. Throws `ProviderError` for any other.
 */
export async function readNamed(
  directory: string,
  paths: readonly string[],
  read: AnswerImages,
): Promise<Outputs> {
  const root = await realpath(directory).catch((error) => Promise.reject(unreadable("output_dir", error)));
  const images: Outputs["images"] = [];
  for (const path of paths.slice(0, MAX_FILES)) {
    const found = await realpath(resolve(root, path)).catch((error) =>
      Promise.reject(unreadable(path, error)),
    );
    if (!found.startsWith(root + sep)) throw unusable(path, "is not inside output_dir");
    images.push(await withFile(found, path, (file) => readWhole(file, path, read)));
  }
  const notes = paths.length > MAX_FILES ? [`Only the first ${MAX_FILES} images were kept.`] : [];
  return { images, notes };
}

/** Reads the images in the directory by name, at most 16. Leaves out what is no image, and notes it. */
export async function readFound(directory: string, read: AnswerImages): Promise<Outputs> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((error) =>
    Promise.reject(unreadable("output_dir", error)),
  );
  const outputs: Outputs = { images: [], notes: [] };
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(directory, entry.name);
    const image = entry.isFile() ? await readIfImage(path, entry.name, read) : null;
    if (image !== null) outputs.images.push(image);
    else outputs.notes.push(`${upstreamWords(entry.name)} is no image and was left out.`);
    if (outputs.images.length + outputs.notes.length === MAX_FILES) break;
  }
  return outputs;
}

function readIfImage(path: string, name: string, read: AnswerImages): Promise<Buffer | LargeImage | null> {
  return withFile(path, name, async (file) => {
    const { buffer } = await file.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0);
    return sniffImageType(buffer) === null ? null : readWhole(file, name, read);
  });
}

/** Opens without following a link and without waiting for a pipe. */
async function withFile<T>(path: string, name: string, work: (file: FileHandle) => Promise<T>): Promise<T> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch((error) => Promise.reject(unreadable(name, error)));
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

async function readWhole(file: FileHandle, name: string, read: AnswerImages): Promise<Buffer | LargeImage> {
  const stats = await file.stat();
  if (!stats.isFile()) throw unusable(name, "is no regular file");
  if (stats.size > MAX_FILE_BYTES) {
    const message = `${upstreamWords(name)} is larger than ${formatBytes(MAX_FILE_BYTES)}.`;
    throw new ProviderError("INVALID_IMAGE_OUTPUT", message);
  }
  const sink = read.open();
  for (let at = 0; at < stats.size; ) {
    const bytes = Math.min(PIECE_BYTES, stats.size - at);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(bytes), 0, bytes, at);
    if (bytesRead === 0) break;
    await sink.write(buffer.subarray(0, bytesRead));
    at += bytesRead;
  }
  return sink.image;
}

function unreadable(name: string, error: NodeJS.ErrnoException): ProviderError {
  return unusable(name, `cannot be read (${error.code ?? error.message})`);
}

/** The program has made something that cannot be used: nobody knows whether the image was paid. */
function unusable(name: string, why: string): ProviderError {
  return new ProviderError("PROVIDER_ITEM_FAILED", `The output ${upstreamWords(name)} ${why}.`, {
    trouble: "ambiguous",
  });
}
