import { access, readdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { typeOfFileName } from "../../contract/image-formats.ts";
import { openPath } from "../../processes/programs.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import { GALLERY_FILE } from "../../runs/reports/gallery.ts";
import type { CommandContext, CommandDetails, CommandResult, Output } from "../command.ts";
import { noRun } from "../targets.ts";

export const command: CommandDetails = {
  arguments: [
    {
      name: "[dir|image]",
      description:
        "the output directory of a run, or an image file; without it, this directory, else the newest run in it",
    },
  ],
  examples: ["imgbatch open", "imgbatch open prompts-images", "imgbatch open fox.png"],
  exits: ["conflict", "saving"],
  run,
};

/**
 * `imgbatch open`: opens the contact sheet of a run, or its folder if it has none; or an image. Prints the path in every
 * case.
 */
async function run({ arguments: [named], cwd, output }: CommandContext): Promise<CommandResult> {
  if (named !== undefined && typeOfFileName(named) !== null) {
    const image = resolve(cwd, named);
    if ((await stat(image).catch(() => null))?.isFile()) return show(image, output);
  }
  const shownDir = named ?? (await newestRun(cwd));
  const dir = resolve(cwd, shownDir);
  if ((await readRunState(dir)) === null) throw noRun(shownDir, cwd);
  const sheet = join(dir, GALLERY_FILE);
  const hasSheet = await access(sheet).then(
    () => true,
    () => false,
  );
  if (!hasSheet)
    output.note(`${shownDir} has no contact sheet: run the command that made it again to get one`);
  return show(hasSheet ? sheet : dir, output);
}

async function show(path: string, output: Pick<Output, "note">): Promise<CommandResult> {
  const isOpen = await openPath(path);
  if (!isOpen) output.note("nothing can be opened here: open this path in a browser");
  return { json: { path, opened: isOpen }, lines: [path] };
}

/** Returns the directory itself if it is a run, else the run in it that began last. Throws `USAGE` without any. */
export async function newestRun(cwd: string): Promise<string> {
  if ((await readRunState(cwd)) !== null) return ".";
  const runs: { name: string; createdAt: string }[] = [];
  for (const entry of await readdir(cwd, { withFileTypes: true })) {
    // A damaged run must not hide the others.
    const found = entry.isDirectory() ? await readRunState(join(cwd, entry.name)).catch(() => null) : null;
    if (found !== null) runs.push({ name: entry.name, createdAt: found.created_at });
  }
  const newest = runs.toSorted((a, b) => (a.createdAt < b.createdAt ? 1 : -1))[0];
  if (newest === undefined)
    throw new ImgbatchError("USAGE", "There is no run in this directory: name the output directory of one.");
  return newest.name;
}
