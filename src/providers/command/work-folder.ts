import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { IMAGE_EXTENSIONS } from "../../contract/image-formats.ts";
import type { ImageRequest } from "../../domain/ports/image-provider.ts";
import { joinTurns } from "../../kernel/text.ts";

/** The private files of one call, in the folder for temporary files. */
export interface WorkFolder {
  path: string;
  /** Unique on this machine while the call runs. */
  id: string;
  /** The whole text: earlier turns, then the newest. */
  prompt: string;
  promptFile: string;
  /** The directory that the program writes its images to. */
  output: string;
  /** The path of a file in the output directory, with the extension of the requested type. For programs that take one path. */
  outputFile: string;
  references: { path: string; mime_type: string }[];
  /** Writes the prompt and the reference images. */
  fill(): Promise<void>;
}

/** Makes a folder that only this user can read, with an empty directory for the outputs. */
export async function makeWorkFolder(request: ImageRequest): Promise<WorkFolder> {
  const path = await mkdtemp(join(tmpdir(), "imgbatch-command-"));
  const promptFile = join(path, "prompt.txt");
  const output = join(path, "output");
  const prompt = joinTurns(request.earlier ?? "", request.prompt);
  const references = request.references.map(({ mimeType }, index) => ({
    path: join(path, `reference-${index + 1}.${IMAGE_EXTENSIONS[mimeType]}`),
    mime_type: mimeType,
  }));
  return {
    path,
    id: basename(path),
    prompt,
    promptFile,
    output,
    outputFile: join(output, `image.${IMAGE_EXTENSIONS[request.mimeType]}`),
    references,
    fill: async () => {
      await mkdir(output, { mode: 0o700 });
      await writeFile(promptFile, prompt, { mode: 0o600 });
      for (const [index, reference] of request.references.entries())
        await reference.lend((bytes) => writeFile(references[index]?.path ?? "", bytes, { mode: 0o600 }));
    },
  };
}

/** Removes the folder. A folder that cannot be removed must not cost an image that was made. */
export async function removeWorkFolder(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 3 }).catch(() => {});
}
