import { lstat, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { isDataDirectoryInUse } from "../../service/native-modules.ts";

/** The names of ephemeral directories. */
const NAME = /^imgbatch-(exec|serve)-\w{6}$/;
/** A younger directory may belong to a command that has not locked it yet. */
const MIN_AGE_MS = 60_000;

/**
 * Creates a data directory for the time of one command. First removes the directories that killed commands have left.
 * `nowMs` is the time in ms since 1970.
 */
export async function makeEphemeralDirectory(command: "exec" | "serve", nowMs: number): Promise<string> {
  await removeAbandoned(tmpdir(), nowMs).catch(() => {});
  return mkdtemp(join(tmpdir(), `imgbatch-${command}-`));
}

async function removeAbandoned(parent: string, nowMs: number): Promise<void> {
  for (const name of await readdir(parent)) {
    if (!NAME.test(name)) continue;
    const path = join(parent, name);
    // The next start tries again.
    await isAbandoned(path, nowMs)
      .then((isIt) => (isIt ? rm(path, { recursive: true, force: true }) : undefined))
      .catch(() => {});
  }
}

/** False for links and for directories of other users, because everyone can write to the temporary folder. */
async function isAbandoned(path: string, nowMs: number): Promise<boolean> {
  const stats = await lstat(path);
  const { uid } = userInfo();
  if (!stats.isDirectory() || (uid >= 0 && stats.uid !== uid)) return false;
  return nowMs - stats.mtimeMs > MIN_AGE_MS && !(await isDataDirectoryInUse(path));
}
