import { accessSync, constants, existsSync, rmdirSync, rmSync } from "node:fs";
import { lstat, readdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Batch } from "../../client/answers.ts";
import { isSystemError, removeFile, saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import {
  appendText,
  fileIdentity,
  makeDirectory,
  PARTIAL_SUFFIX,
  syncDirectory,
} from "../../kernel/files.ts";
import {
  CHECKS_FILE,
  FILES_FILE,
  IMAGES_FOLDER,
  INPUT_FILE,
  REFERENCES_FOLDER,
  REVIEW_FILE,
  VERSIONS_FOLDER,
} from "./names.ts";
import { isSameService, type RunService } from "./run-service.ts";
import { newBatch, newRunState, readRunState, recordBatch, writeRunState } from "./run-state.ts";
import type { RunState } from "./run-state-schema.ts";

/** Names that a run writes. In a directory without a run state, files of these names are not the run's. */
const OWN_NAMES = [
  IMAGES_FOLDER,
  REFERENCES_FOLDER,
  "input.jsonl",
  "results.jsonl",
  "retry.jsonl",
  REVIEW_FILE,
  CHECKS_FILE,
  FILES_FILE,
];

/**
 * Makes the directory when needed and returns its run state, null when it is new. `inputSha256` is null when images are
 * only fetched. Throws `DIRECTORY_CONFLICT` when it belongs to another input, or holds files that a run would mix with its
 * own.
 */
export async function claimDirectory(dir: string, inputSha256: string | null): Promise<RunState | null> {
  await saving(dir, () => makeDurably(dir));
  const runState = await checkDirectory(dir, inputSha256);
  if (runState !== null) await commitPendingInput(dir, runState);
  return runState;
}

/** Checks a directory as `claimDirectory` does, and writes nothing. */
export async function checkDirectory(dir: string, inputSha256: string | null): Promise<RunState | null> {
  await refuseLinks(dir);
  const runState = await readRunState(dir);
  if (runState === null) {
    if (existsSync(dir)) await refuseForeignFiles(dir);
    return null;
  }
  if (runState.input_sha256 !== inputSha256) {
    throw conflict(dir, "belongs to a run with other prompts or options");
  }
  return runState;
}

/** Throws `DIRECTORY_CONFLICT` unless the run is one of this service. */
export function requireSameService(dir: string, { base_url }: RunState, identity: string): void {
  if (isSameService(base_url, identity)) return;
  throw conflict(dir, `belongs to a run on another service (${base_url}, not ${identity})`);
}

async function refuseForeignFiles(dir: string): Promise<void> {
  for (const name of await saving(dir, () => readdir(dir))) {
    if (!OWN_NAMES.includes(name)) continue;
    const inside = await readdir(join(dir, name)).catch(() => null);
    if (inside === null || inside.length > 0) {
      throw conflict(dir, `already has ${JSON.stringify(name)}, which is not of an earlier run`);
    }
  }
}

/** Makes a directory and its missing parents, on disk when this resolves. Returns the topmost new one. */
async function makeDurably(dir: string): Promise<string | undefined> {
  const first = await makeDirectory(dir);
  if (first === undefined) return undefined;
  for (let at = dir; at.length >= first.length; at = dirname(at)) await syncDirectory(dirname(at));
  return first;
}

/** Throws when a folder of the run is a link: the run must not write where it leads. */
async function refuseLinks(dir: string): Promise<void> {
  for (const name of [IMAGES_FOLDER, REFERENCES_FOLDER, VERSIONS_FOLDER]) {
    const stats = await lstat(join(dir, name)).catch(() => null);
    if (!stats?.isSymbolicLink()) continue;
    const advice = "put the folder in the place of the link, then run the same command again";
    throw conflict(dir, `has a link called ${JSON.stringify(name)}`, advice);
  }
}

function conflict(dir: string, why: string, advice?: string): ImgbatchError {
  const message = `${dir} ${why}. Choose another directory with --output.`;
  return new ImgbatchError("DIRECTORY_CONFLICT", message, { advice });
}

const LEFTOVER = new RegExp(`^(\\..+\\.[0-9a-f]{12}|[0-9a-f]{64})\\${PARTIAL_SUFFIX}$`);
/** The prefix of a ZIP that is deleted after unpacking. */
export const PASSING_PREFIX = ".imgbatch-";
const PASSING_ZIP = /^\.imgbatch-[\w-]+\.zip(\.part(\.etag)?)?$/;

/** Removes files that a crash left half written. Other files stay. */
export async function removeLeftovers(dir: string): Promise<void> {
  const folders = [IMAGES_FOLDER, REFERENCES_FOLDER, VERSIONS_FOLDER].map((name) => join(dir, name));
  for (const folder of [dir, ...folders]) await removeMatching(folder, LEFTOVER);
}

/** Removes ZIPs, whole or in part, that were to be unpacked. A complete run does not need them. */
export async function removePassingZips(dir: string): Promise<void> {
  await removeMatching(dir, PASSING_ZIP);
}

async function removeMatching(folder: string, pattern: RegExp): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  for (const name of names.filter((each) => pattern.test(each))) await removeFile(join(folder, name));
}

const PENDING = /^\.input-([0-9a-f]{64})\.jsonl$/;

/**
 * Finishes the change of a run's input after a kill: the run state decides. An input that it names replaces the earlier one,
 * and any other one is removed.
 */
export async function commitPendingInput(
  dir: string,
  { input_sha256: inputSha256 }: Pick<RunState, "input_sha256">,
): Promise<void> {
  for (const name of await readdir(dir).catch(() => [])) {
    const [, sha256] = PENDING.exec(name) ?? [];
    if (sha256 === undefined) continue;
    const path = join(dir, name);
    await saving(path, async () => {
      if (sha256 === inputSha256) await rename(path, join(dir, INPUT_FILE));
      else await rm(path, { force: true });
      await syncDirectory(dir);
    });
  }
}

/**
 * Prepares a directory for the images of batches that were submitted elsewhere. A directory that
 * already belongs to these batches stays as it is. `from` is the run whose batches they are, if it is known. Throws `DIRECTORY_CONFLICT` when it belongs to others.
 */
export async function adoptDirectory(
  dir: string,
  batches: readonly Batch[],
  service: RunService,
  clock: Clock,
  from: RunState | null,
): Promise<RunState> {
  const existing = await readRunState(dir);
  if (existing !== null) {
    const ids = existing.batches.map((entry) => entry.id);
    if (ids.length === batches.length && batches.every((batch) => ids.includes(batch.id))) return existing;
    throw new ImgbatchError(
      "DIRECTORY_CONFLICT",
      `${dir} belongs to other batches. Choose another directory with --output.`,
    );
  }
  await claimDirectory(dir, null);
  await removeLeftovers(dir);
  const entries = batches.map((batch, index) => {
    const { round = 0, images } = from?.batches.find(({ id }) => id === batch.id) ?? {};
    const entry = newBatch(index, service, { round, ...(images === undefined ? {} : { images }) });
    recordBatch(entry, batch);
    return entry;
  });
  const facts = { input_sha256: null, is_fresh: false, request: null, batches: entries };
  const fresh = newRunState(service, clock, facts);
  const runState = from?.updates === undefined ? fresh : { ...fresh, updates: from.updates };
  await writeRunState(dir, runState);
  return runState;
}

/** Always empty. Exists while a process works in the directory, or after a crash. */
const LOCK_FILE = ".imgbatch.lock";
/** A process that was just killed may need a moment to end. */
const PATIENCE_MS = 2000;
const POLL_MS = 50;

interface LockOptions {
  clock: Clock;
  signal?: AbortSignal | undefined;
  /** How long to wait for the other process, in ms; default 2000. */
  patienceMs?: number;
}

/**
 * Does work in a run's directory alone: two processes would overwrite each other's run state. The lock is an open
 * exclusive transaction on an empty database, so the system frees it whenever the process ends, even after a kill. It
 * also holds between containers that share the directory, which a socket would not. A directory that cannot be written
 * needs no lock. A directory that was made here and stays empty is removed.
 * Throws `DIRECTORY_IN_USE` when another process has it, `SAVE_FAILED` when the directory cannot be made, and
 * `DIRECTORY_CONFLICT` when a folder of the run is a link.
 */
export async function withRunLock<T>(dir: string, options: LockOptions, work: () => Promise<T>): Promise<T> {
  await refuseLinks(dir);
  return withLockFile(join(dir, LOCK_FILE), options, work);
}

/** Does work alone as `withRunLock` does, with a lock of its own: a file that exists while the work lasts, or after a crash. */
export async function withLockFile<T>(
  path: string,
  options: LockOptions,
  work: () => Promise<T>,
): Promise<T> {
  const { clock, signal, patienceMs = PATIENCE_MS } = options;
  const dir = dirname(path);
  if (isReadOnly(dir)) return work();
  let made: string | undefined;
  for (let waitedMs = 0; ; waitedMs += POLL_MS) {
    // Made again each time: the previous owner may have removed a directory that stayed empty.
    made = (await saving(dir, () => makeDurably(dir))) ?? made;
    await saving(path, () => appendText(path, ""));
    const release = await acquire(path);
    if (release !== null) {
      try {
        return await work();
      } finally {
        release();
        if (made !== undefined) removeEmpty(dir, made);
      }
    }
    if (waitedMs >= patienceMs) {
      const message = `Another imgbatch is at work in ${dir}: wait until it has ended, or use another directory.`;
      throw new ImgbatchError("DIRECTORY_IN_USE", message);
    }
    await clock.sleep(POLL_MS, signal);
  }
}

/** In a read-only directory nothing can be overwritten. Work that has to write fails by itself. */
function isReadOnly(dir: string): boolean {
  try {
    accessSync(dir, constants.W_OK);
    return false;
  } catch (error) {
    return isSystemError(error) && ["EROFS", "EACCES", "EPERM"].includes(error.code);
  }
}

/** Removes directories that were made for work that left nothing in them, from `dir` up to `first`. */
function removeEmpty(dir: string, first: string): void {
  for (let at = dir; at.length >= first.length; at = dirname(at)) {
    try {
      rmdirSync(at);
    } catch {
      return;
    }
  }
}

/** Null when another process has the lock. */
async function acquire(path: string): Promise<(() => void) | null> {
  // Loaded when a lock is taken: most commands take none.
  const { default: Sqlite } = await import("better-sqlite3");
  const before = fileIdentity(path);
  if (before === null) return null;
  const lock = new Sqlite(path, { timeout: 0 });
  try {
    // Nothing is ever written, so nothing needs a journal beside it.
    lock.pragma("journal_mode = MEMORY");
    lock.exec("BEGIN EXCLUSIVE");
  } catch (error) {
    lock.close();
    if (!(error instanceof Sqlite.SqliteError)) throw error;
    // On a file system without locks the work is done without one.
    return error.code.startsWith("SQLITE_BUSY") || fileIdentity(path) !== before ? null : () => {};
  }
  // The previous owner may have removed the opened file, and another process may have locked a new one.
  if (fileIdentity(path) !== before) {
    lock.close();
    return null;
  }
  return () => {
    // The file may have been removed, and another process may have made a new one.
    if (fileIdentity(path) === before) rmSync(path, { force: true });
    lock.close();
  };
}

/**
 * Writes the current state of its batches into a run's state. Does nothing while another process works on the run, since
 * that process keeps the run state.
 */
export async function recordInRunState(dir: string, batches: readonly Batch[], clock: Clock): Promise<void> {
  const byId = new Map(batches.map((batch) => [batch.id, batch]));
  try {
    // Nothing is written into the folders of the run: a link in the place of one is no reason to fail.
    await withLockFile(join(dir, LOCK_FILE), { clock, patienceMs: 0 }, async () => {
      // Read again: it may have changed while this process waited for the batches.
      const runState = await readRunState(dir);
      if (runState === null) return;
      for (const entry of runState.batches) {
        const batch = entry.id === null ? undefined : byId.get(entry.id);
        if (batch !== undefined) recordBatch(entry, batch);
      }
      await writeRunState(dir, runState);
    });
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "DIRECTORY_IN_USE") throw error;
  }
}
