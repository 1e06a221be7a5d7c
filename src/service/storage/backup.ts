import { closeSync, existsSync, openSync } from "node:fs";
import { mkdir, open, readdir, readFile, realpath, rename, rm } from "node:fs/promises";
import { dirname, join, sep } from "node:path";
import Sqlite from "better-sqlite3";
import PQueue from "p-queue";
import { LOCAL_STORAGE } from "../../config/storage-places.ts";
import { DATA_FILES } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { type BlobStore, StorageUnavailable } from "../../domain/ports/blob-store.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";
import {
  isPartialFile,
  makeDirectory,
  removePartialFiles,
  syncDirectory,
  writeFileDurably,
} from "../../kernel/files.ts";
import { isDiskFull, systemCodeOf } from "../../kernel/system-errors.ts";
import { fileBlobs } from "../../storage/blobs/file-blobs.ts";
import { copyBlob, LEFT_BEHIND } from "../../storage/copy.ts";
import { acquireDataLockPatiently } from "../../storage/data-lock.ts";

import { refuseMoved } from "./open-storage.ts";

interface BackupReport {
  /** The files that the copy of the database names. */
  files: number;
  /** The files that were not in the directory before. */
  copied: number;
  bytes: number;
  /** When the database was copied: what happened later is not in the backup. */
  atMs: number;
  /** Files that rows name and that the data directory itself does not have. */
  missing: string[];
}

interface BackupOptions {
  /** A data directory with its database and images; a service may run on it. */
  directory: string;
  /** Empty, missing, or an earlier backup. */
  target: string;
  clock?: Clock;
  /** Called when a step begins or has come further. */
  onProgress?: (text: string) => void;
  /** Gives up between two files. */
  signal?: AbortSignal;
}

/** After so many copies of the database, each of which named files that were deleted meanwhile. */
const MOST_ROUNDS = 10;
const FILES_AT_ONCE = 4;
/** Small files of a data directory that a service needs after a restore. */
const SMALL_FILES = [DATA_FILES.credentials, join("mcp", "spending.json")];

/**
 * Makes another directory a data directory with the same content, as it was at one moment. Files are copied first, then the
 * database, then the files that are new since: so each row of the copy finds its file, also the rows of files that are deleted
 * meanwhile. The new database gets its name last. Until then, the directory is the earlier backup, or has no database. Throws
 * `FILE_EXISTS` for a target that is something else, `DATA_DIRECTORY_IN_USE` while another process works on it, and
 * `SAVE_FAILED` when it cannot be written: a first backup is then removed.
 */
export async function backupStorage(options: BackupOptions): Promise<BackupReport> {
  const { directory, target, clock = systemClock } = options;
  if (!existsSync(join(directory, DATA_FILES.database))) {
    const message = `${directory} is not a data directory: it has no ${DATA_FILES.database}`;
    throw new ImgbatchError("USAGE", message);
  }
  refuseMoved(directory, LOCAL_STORAGE);
  const made = await makeDirectory(target, 0o700).catch((error) => {
    throw notSaved(target, error);
  });
  await refuseOther(directory, target).catch(async (error) => {
    if (made !== undefined) await rm(made, { recursive: true, force: true });
    throw error;
  });
  const release = await acquireDataLockPatiently(target, clock);
  const at = (name: string) => join(target, name);
  const isFirst = !existsSync(at(DATA_FILES.database));
  const copied: string[] = [];
  try {
    await removePartialFiles(target);
    await rm(at(DATA_FILES.scratch), { recursive: true, force: true });
    if (isFirst) await writeMark(target, null);
    const report = await backup(options, copied);
    release();
    return report;
  } catch (error) {
    release();
    await rm(at(DATA_FILES.scratch), { recursive: true, force: true });
    const to = fileBlobs(at(DATA_FILES.blobs));
    await to.removeDrafts();
    if (!isFirst) for (const key of copied) await to.delete(key);
    else if (made !== undefined) await rm(made, { recursive: true, force: true });
    else for (const name of await readdir(target)) await rm(at(name), { recursive: true, force: true });
    throw notSaved(target, error);
  }
}

/** The places that must not be mixed up: the data itself, and directories that are no backups. */
async function refuseOther(directory: string, target: string): Promise<void> {
  const [data, to] = [await realpath(directory), await realpath(target)];
  if (`${to}${sep}`.startsWith(`${data}${sep}`) || `${data}${sep}`.startsWith(`${to}${sep}`)) {
    const message = `${target} and the data directory ${directory} lie in each other.`;
    throw new ImgbatchError("USAGE", message, { advice: "name a directory elsewhere, best on another disk" });
  }
  // A first backup that was killed before its mark has left no more than its lock and a piece of the mark.
  const isOwn = (name: string) => name.startsWith(DATA_FILES.lock) || isPartialFile(name);
  if (existsSync(join(target, DATA_FILES.backup)) || (await readdir(target)).every(isOwn)) return;
  const message = `${target} is not empty, and it is not a backup, or a service has run in it.`;
  throw new ImgbatchError("FILE_EXISTS", message, {
    advice: "name an empty directory, or an earlier backup",
  });
}

async function backup(options: BackupOptions, copied: string[]): Promise<BackupReport> {
  const { directory, target, clock = systemClock, onProgress = () => {} } = options;
  const [from, to] = [directory, target].map((each) => fileBlobs(join(each, DATA_FILES.blobs))) as [
    BlobStore,
    BlobStore,
  ];
  const scratch = join(target, DATA_FILES.scratch);
  const fresh = join(scratch, DATA_FILES.database);
  const files = new Files(from, to, options, copied);
  await files.copyNew();
  let missing: string[] = [];
  for (let round = 1; ; round++) {
    onProgress("copying the database");
    await rm(scratch, { recursive: true, force: true });
    await mkdir(scratch, { mode: 0o700 });
    const atMs = clock.nowMs();
    await copySqlite(join(directory, DATA_FILES.database), fresh);
    await files.copyNew();
    const named = blobsNamedIn(fresh);
    const before = new Set(missing);
    missing = named.filter(({ key, isNeeded }) => isNeeded && !files.there.has(key)).map(({ key }) => key);
    // Rows go before their files: a file that was missing already at this copy of the database was not deleted meanwhile.
    if (missing.some((key) => !before.has(key))) {
      if (round < MOST_ROUNDS) continue;
      throw new ImgbatchError("SAVE_FAILED", "Files were deleted faster than they could be copied.");
    }
    for (const name of SMALL_FILES) await copySmall(directory, target, name);
    await publish(fresh, join(target, DATA_FILES.database));
    await writeMark(target, atMs);
    await rm(scratch, { recursive: true, force: true });
    const keys = new Set(named.map(({ key }) => key).filter((key) => files.there.has(key)));
    for (const key of files.there.keys()) if (!keys.has(key)) await to.delete(key);
    return {
      files: keys.size,
      copied: copied.filter((key) => keys.has(key)).length,
      bytes: files.bytes,
      atMs,
      missing,
    };
  }
}

/** The files of both sides. */
class Files {
  /** The files of the backup, with their sizes. */
  readonly there = new Map<string, number>();
  /** How much was copied. */
  bytes = 0;
  readonly #from: BlobStore;
  readonly #to: BlobStore;
  readonly #options: BackupOptions;
  readonly #copied: string[];

  constructor(from: BlobStore, to: BlobStore, options: BackupOptions, copied: string[]) {
    [this.#from, this.#to, this.#options, this.#copied] = [from, to, options, copied];
  }

  /** Copies what the backup does not have yet. What is deleted meanwhile is left out. */
  async copyNew(): Promise<void> {
    const { onProgress = () => {}, signal } = this.#options;
    const ages = new Map<string, number>();
    for (const { key, sizeBytes, ageMs } of await this.#to.list("")) {
      this.there.set(key, sizeBytes);
      ages.set(key, ageMs);
    }
    // An image that no row has named yet may have been made again under its old name.
    const isNew = ({ key, sizeBytes, ageMs }: Awaited<ReturnType<BlobStore["list"]>>[number]) =>
      this.there.get(key) !== sizeBytes || ageMs < (ages.get(key) ?? 0);
    const listed = await this.#from.list("");
    const wanted = listed.filter((blob) => !LEFT_BEHIND.test(blob.key) && isNew(blob));
    const queue = new PQueue({ concurrency: FILES_AT_ONCE });
    let done = 0;
    const copy = async (key: string, sizeBytes: number) => {
      signal?.throwIfAborted();
      const isOther = this.there.has(key);
      if (!(await copyBlob(this.#from, this.#to, key))) return;
      this.there.set(key, sizeBytes);
      this.bytes += sizeBytes;
      if (!isOther) this.#copied.push(key);
      onProgress(`copying files: ${++done} of ${wanted.length}`);
    };
    try {
      await queue.addAll(
        wanted.map(
          ({ key, sizeBytes }) =>
            () =>
              copy(key, sizeBytes),
        ),
      );
    } catch (error) {
      queue.clear();
      await queue.onIdle();
      throw error;
    }
  }
}

async function copySmall(directory: string, target: string, name: string): Promise<void> {
  const bytes = await readFile(join(directory, name)).catch((error) => {
    if (systemCodeOf(error) === "ENOENT") return null;
    throw error;
  });
  if (bytes === null) return;
  await mkdir(dirname(join(target, name)), { recursive: true, mode: 0o700 });
  await writeFileDurably(join(target, name), bytes, { mode: 0o600 });
}

/** Gives a whole file its name. */
async function publish(file: string, name: string): Promise<void> {
  const handle = await open(file, "r+");
  await handle.sync().finally(() => handle.close());
  await rename(file, name);
  await syncDirectory(dirname(name));
}

function writeMark(target: string, finishedAtMs: number | null): Promise<void> {
  return writeFileDurably(join(target, DATA_FILES.backup), `${JSON.stringify({ of_ms: finishedAtMs })}\n`);
}

/** A full disk, or one that refuses, is named with the directory. */
function notSaved(target: string, error: unknown): unknown {
  if (error instanceof ImgbatchError) return error;
  const cause = error instanceof StorageUnavailable ? error.cause : error;
  const why = isDiskFull(cause) ? "its disk is full" : `${(cause as Error).message} (${systemCodeOf(cause)})`;
  if (!(error instanceof StorageUnavailable) && systemCodeOf(cause) === "unknown") return error;
  return new ImgbatchError("SAVE_FAILED", `The backup in ${target} could not be written: ${why}.`, { cause });
}

/** All pages in one step: between two steps another process may write, and then SQLite begins again. */
const ALL_PAGES = 0x7fffffff;

/**
 * Copies a database as it is at one moment into a new file, while other processes go on writing. Items that are not made yet
 * are marked in the copy, unless they are free of charge: a service that goes on from it does not know whether they were paid for
 * after that moment. The guide to clusters has the same statements for PostgreSQL.
 */
async function copySqlite(file: string, target: string): Promise<void> {
  // Prompts are in it: SQLite would make a file that others can read.
  closeSync(openSync(target, "wx", 0o600));
  const source = new Sqlite(file, { readonly: true, fileMustExist: true });
  try {
    await source.backup(target, { progress: () => ALL_PAGES });
  } finally {
    source.close();
  }
  const copy = new Sqlite(target);
  try {
    copy.exec(`update items set maybe_paid = 'once' where status = 'pending' and maybe_paid = 'no'
      and batch_id in (select id from batches where ended_at_ms is null and price not like '%"isFree":true%')`);
    // The old service may have created these: the upstream's list is searched for them first.
    copy.exec("update upstream_jobs set creates = 1 where creates = 0 and step in ('new', 'uploaded')");
  } finally {
    copy.close();
  }
}

/** Returns each blob that a row of the database names. `isNeeded`: the row is wrong without it. */
function blobsNamedIn(file: string): { key: string; isNeeded: boolean }[] {
  const database = new Sqlite(file, { fileMustExist: true });
  try {
    const rows = database.prepare(NAMED).all() as { key: string; needed: number }[];
    return rows.map(({ key, needed }) => ({ key, isNeeded: needed === 1 }));
  } finally {
    database.close();
  }
}

const NAMED = `
  select o.blob_key as key, b.status != 'output_deleted' as needed from outputs o join batches b on b.id = o.batch_id
  union all select r.blob_key, b.ended_at_ms is null from reference_images r join batches b on b.id = r.batch_id
    where r.blob_key is not null and b.inputs_purged_at_ms is null
  union all select json_extract(input, '$.blobKey'), input_read_at_ms is null and ended_at_ms is null from batches
    where input is not null and inputs_purged_at_ms is null
  union all select blob_key, expires_at_ms != 0 from files
  union all select 'links/' || id, 1 from linked_images
  union all select json_extract(value, '$.blobKey'), 1 from interactions, json_each(interactions.pictures)
  union all select 'answers/' || realtime_id, 1 from keyed_requests where json_extract(answer, '$.sha256') is not null`;
