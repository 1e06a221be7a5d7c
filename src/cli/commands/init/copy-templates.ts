import { chmod, open, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { saving } from "../../../client/file-errors.ts";
import { writeFileDurably } from "../../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../../kernel/files/make-directory.ts";
import { packageFile } from "../../../kernel/files/package-file.ts";
import { readVersion } from "../../../kernel/version.ts";
import type { TemplateFile } from "./template-files.ts";

export interface CopiedTemplates {
  written: string[];
  /** The files that existed before and were kept. */
  kept: string[];
}

/**
 * Copies templates into a directory, and creates it if it is missing. Keeps existing files, unless `force` is set.
 * Existence is checked by the write itself, so a file that appears meanwhile is kept too. Throws `SAVE_FAILED`.
 */
export async function copyTemplates(
  dir: string,
  files: readonly TemplateFile[],
  force: boolean,
): Promise<CopiedTemplates> {
  const written: string[] = [];
  const kept: string[] = [];
  for (const file of files) {
    const { target, isExecutable } = file;
    const path = join(dir, target);
    const text = "text" in file ? file.text : await readTemplate(file.source);
    const mode = isExecutable ? 0o755 : 0o644;
    const isNew = await saving(path, async () => {
      await makeDirectory(dirname(path));
      if (!force) return writeNew(path, text, mode);
      await writeFileDurably(path, text, { mode });
      await chmod(path, mode);
      return true;
    });
    (isNew ? written : kept).push(target);
  }
  return { written, kept };
}

/** Returns a template of the package, with the package's version where it names one. */
async function readTemplate(source: string): Promise<string> {
  const text = await readFile(packageFile(`templates/${source}`), "utf8");
  return text.replaceAll("{{version}}", readVersion());
}

/** Returns false if the name is taken, even by a link whose target is missing. */
async function writeNew(path: string, text: string, mode: number): Promise<boolean> {
  const file = await open(path, "wx", mode).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "EEXIST") return null;
    throw error;
  });
  if (file === null) return false;
  try {
    await file.writeFile(text);
  } finally {
    await file.close();
  }
  return true;
}
