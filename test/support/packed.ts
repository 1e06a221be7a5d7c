import { execFile } from "node:child_process";
import { mkdir, symlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";

const ROOT = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);

/** The packages that are installed with the program. */
const DEPENDENCIES = ["better-sqlite3", "dejavu-fonts-ttf", "sharp"];

/**
 * Packs what would be published and unpacks it in the project of a stranger, `directory/node_modules/imgbatch`. The packages
 * that it needs, and `beside`, are links to those of this repository: paths below it, such as `test/sdk/node_modules/jest`.
 */
export async function installPacked(directory: string, beside: readonly string[] = []): Promise<string> {
  const installed = join(directory, "node_modules/imgbatch");
  await mkdir(join(installed, "node_modules"), { recursive: true });
  const pack = ["pack", "--json", "--ignore-scripts", "--pack-destination", directory];
  const { stdout } = await run("npm", pack, { cwd: ROOT });
  const [{ filename }] = JSON.parse(stdout);
  await run("tar", ["xzf", join(directory, filename), "-C", installed, "--strip-components=1"]);
  const link = async (from: string, to: string) => {
    await mkdir(dirname(to), { recursive: true });
    await symlink(join(ROOT, from), to);
  };
  for (const name of DEPENDENCIES)
    await link(join("node_modules", name), join(installed, "node_modules", name));
  for (const path of beside) {
    const [, name = path] = /node_modules\/(.+)$/.exec(path) ?? [];
    await link(path, join(directory, "node_modules", name));
  }
  return installed;
}
