import { access, constants, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { DATA_FILES } from "../../../contract/data-directory.ts";
import { nearestExisting } from "../../../kernel/files/nearest-existing.ts";
import { isDataDirectoryInUse } from "../../../service/native-modules.ts";
import { type Finding, fail, ok, warn } from "./finding.ts";

const MIB = 1024 * 1024;
/** The service is not ready with less free space. */
const NEEDED_BYTES = 100 * MIB;
/** The approximate size of a full batch of large images. */
const COMFORTABLE_BYTES = 2048 * MIB;

/** The advice for choosing another directory, by check. */
const OTHER: Record<string, string> = {
  output: "run imgbatch in another directory, or name one with --output",
  data: "name another directory with --data or IMGBATCH_DATA",
};

/** Returns the bytes that this user can still write on the disk of `path`. */
export type FreeBytes = (path: string) => Promise<number>;

const freeBytesOf: FreeBytes = async (path) => {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
};

/**
 * Checks whether files can be created in a directory, which need not exist yet, and whether there is enough free space.
 */
export async function checkDirectory(
  check: string,
  directory: string,
  freeBytes: FreeBytes = freeBytesOf,
): Promise<Finding[]> {
  const place = await nearestExisting(directory);
  const other = OTHER[check] ?? "choose another directory";
  try {
    if (!(await stat(place)).isDirectory())
      return [fail(check, "saving", `cannot write into ${place}: it is a file`, other)];
    await access(place, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === "EROFS" ? "read-only file system" : "no permission";
    const advice = `give this user the right to write there, or ${other}`;
    return [fail(check, "saving", `cannot write into ${place}: ${reason}`, advice)];
  }
  const free = await freeBytes(place);
  const shown = `${Math.floor(free / MIB)} MiB free`;
  const advice = `free some disk space, or ${other}`;
  if (free < NEEDED_BYTES) return [fail(check, "saving", `${place}: only ${shown}`, advice)];
  if (free < COMFORTABLE_BYTES) return [warn(check, `${place}: ${shown}`, advice)];
  const isNew = place === directory ? "" : " (created when needed)";
  return [ok(check, `${directory}${isNew}, ${shown}`)];
}

/** Checks whether other users can read the key of the embedded service, or write to its directory. */
export async function checkSecrecy(dataDirectory: string): Promise<Finding[]> {
  if (process.platform === "win32") return [];
  const path = join(dataDirectory, DATA_FILES.credentials);
  const modeOf = (place: string) =>
    stat(place)
      .then(({ mode }) => mode)
      .catch(() => 0);
  const findings: Finding[] = [];
  if (((await modeOf(path)) & 0o077) !== 0)
    findings.push(warn("credentials", `${path} can be read by others`, `chmod 600 ${path}`));
  if (((await modeOf(dataDirectory)) & 0o022) !== 0) {
    const message = `others can write into ${dataDirectory}, and could put their own data or service there`;
    findings.push(warn("data", message, `chmod go-w ${dataDirectory}`));
  }
  return findings;
}

/** Checks whether a process owns the data directory but does not answer: then commands would fail. */
export async function checkOwner(dataDirectory: string, isAnswering: boolean): Promise<Finding[]> {
  if (isAnswering) return [];
  try {
    if (!(await isDataDirectoryInUse(dataDirectory))) return [];
  } catch {
    // Another check reports why the lock cannot be read.
    return [];
  }
  const message = `another process uses ${dataDirectory} and does not answer`;
  return [
    fail("data in use", "conflict", message, "wait until it has ended, or end it; or use another --data"),
  ];
}
