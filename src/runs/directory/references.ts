import { constants } from "node:fs";
import { copyFile, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { PARTIAL_SUFFIX, writeFileDurably } from "../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { hashFile } from "../files/hash-file.ts";
import type { PromptReference } from "../prompts/prompt-item.ts";
import { REFERENCES_FOLDER } from "./names.ts";

/** Matches the path of a stored reference image, relative to the run's directory. */
export const REFERENCE_PATH = new RegExp(`^${REFERENCES_FOLDER}/[0-9a-f]{64}$`);

/** Returns the path of a stored reference image, relative to the run's directory. */
export function referencePath(sha256: string): string {
  return `${REFERENCES_FOLDER}/${sha256}`;
}

/** Stores each reference image once in the run's directory, under its hash. The run then needs no other file. */
export async function storeReferences(dir: string, references: Iterable<PromptReference>): Promise<void> {
  const stored = new Set<string>();
  for (const reference of references) {
    if (stored.has(reference.sha256)) continue;
    stored.add(reference.sha256);
    const target = join(dir, referencePath(reference.sha256));
    if (await holds(target, reference.sha256)) continue;
    await saving(target, () => makeDirectory(join(dir, REFERENCES_FOLDER)));
    await store(reference, target);
  }
}

async function store(reference: PromptReference, target: string): Promise<void> {
  if ("kept" in reference.source) {
    const { kept } = reference.source;
    return saving(target, () => writeFileDurably(target, kept.read()));
  }
  const { path } = reference.source;
  const copy = `${target}${PARTIAL_SUFFIX}`;
  // A reflink where the file system has them. Never a hard link: editing the original would change the copy.
  await saving(target, () => copyFile(path, copy, constants.COPYFILE_FICLONE));
  if (!(await holds(copy, reference.sha256))) {
    await rm(copy, { force: true });
    throw new ImgbatchError("INVALID_INPUT", `${path} changed while it was read; run the command again.`);
  }
  await saving(target, () => rename(copy, target));
}

/** Reads a stored reference image. Throws `SAVE_FAILED` when it was changed. */
export async function readReference(dir: string, sha256: string): Promise<Buffer> {
  const path = join(dir, referencePath(sha256));
  const data = await saving(path, () => readFile(path));
  if (sha256Hex(data) === sha256) return data;
  throw new ImgbatchError("SAVE_FAILED", `${path} was changed; remove it and run the command again.`);
}

async function holds(path: string, sha256: string): Promise<boolean> {
  return (await hashFile(path)) === sha256;
}
