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
      name: "[dir|image...]",
      description:
        "output directories of runs, or image files; without any, this directory, else the newest run in it",
    },
  ],
  examples: ["imgbatch open", "imgbatch open prompts-images", "imgbatch open fox.png owl.png"],
  exits: ["conflict", "saving"],
  run,
};

/**
 * `imgbatch open`: opens the contact sheet of each run, or its folder if it has none; or an image. Prints the path in every
 * case.
 */
async function run({ arguments: named, cwd, output }: CommandContext): Promise<CommandResult> {
  const paths: string[] = [];
  for (const each of named.length > 0 ? named : [await newestRun(cwd)])
    paths.push(await pathTo(each, cwd, output));
  const shown = await Promise.all(paths.map(async (path) => ({ path, opened: await openPath(path) })));
  if (!shown.every(({ opened }) => opened))
    output.note("nothing can be opened here: open this path in a browser");
  const [first, ...others] = shown;
  return { json: others.length === 0 ? first : { opened: shown }, lines: paths };
}

/** Returns what is opened for an argument. Throws `USAGE` for one that is neither a run nor an image. */
async function pathTo(named: string, cwd: string, output: Pick<Output, "note">): Promise<string> {
  const path = resolve(cwd, named);
  if (typeOfFileName(named) !== null && (await stat(path).catch(() => null))?.isFile()) return path;
  if ((await readRunState(path)) === null) throw noRun(named, cwd);
  const sheet = join(path, GALLERY_FILE);
  const hasSheet = await access(sheet).then(
    () => true,
    () => false,
  );
  if (hasSheet) return sheet;
  output.note(`${named} has no contact sheet: run the command that made it again to get one`);
  return path;
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
