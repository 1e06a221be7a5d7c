import { lstat, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { isDataDirectoryInUse } from "../../service/native-modules.ts";

/** The commands that make such directories. */
const NAME = /^imgbatch-(exec|serve)-\w{6}$/;
/** A younger one may belong to a command that has not locked it yet. */
const MIN_AGE_MS = 60_000;

/**
 * Makes a data directory for as long as one command runs. Those of commands that were killed, which nobody owns any
 * more, are removed first.
 */
export async function makeEphemeralDirectory(command: "exec" | "serve", nowMs: number): Promise<string> {
  await removeAbandoned(tmpdir(), nowMs).catch(() => {});
  return mkdtemp(join(tmpdir(), `imgbatch-${command}-`));
}

async function removeAbandoned(parent: string, nowMs: number): Promise<void> {
  for (const name of await readdir(parent)) {
    if (!NAME.test(name)) continue;
    const path = join(parent, name);
    // What cannot be looked at or removed is left to the next start.
    await isAbandoned(path, nowMs)
      .then((isIt) => (isIt ? rm(path, { recursive: true, force: true }) : undefined))
      .catch(() => {});
  }
}

/** Never a link, nor a directory of somebody else: others can write where these are. */
async function isAbandoned(path: string, nowMs: number): Promise<boolean> {
  const stats = await lstat(path);
  const { uid } = userInfo();
  if (!stats.isDirectory() || (uid >= 0 && stats.uid !== uid)) return false;
  return nowMs - stats.mtimeMs > MIN_AGE_MS && !(await isDataDirectoryInUse(path));
}
