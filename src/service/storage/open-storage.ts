import { setMaxListeners } from "node:events";
import { existsSync, readFileSync, statSync } from "node:fs";
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { BlobsPlace, DatabasePlace, StoragePlaces } from "../../config/storage-places.ts";
import { DATA_FILES } from "../../contract/data-directory.ts";
import { ImgbatchError, isDatabaseDamage } from "../../contract/errors.ts";
import { type BlobStore, StorageUnavailable } from "../../domain/ports/blob-store.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import { hideNodeWarningOfAws } from "../../environment.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";
import { programName } from "../../kernel/command-line.ts";
import { makeDirectory, removePartialFiles, writeFileDurably } from "../../kernel/files.ts";
import { fieldsOf } from "../../kernel/json.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import { fileBlobs } from "../../storage/blobs/file-blobs.ts";
import { acquireDataLockPatiently } from "../../storage/data-lock.ts";
import type { Notices } from "../../storage/dialects/postgres-notices.ts";
import type { SqlDatabase } from "../../storage/dialects/sql-session.ts";
import { openSqlite } from "../../storage/dialects/sqlite.ts";
import { storageFailure } from "../../storage/disk-trouble.ts";
import { migrate } from "../../storage/migrate.ts";
import { sqlStores } from "../../storage/stores.ts";
import { claimBucket, refuseForeignBucket } from "./bucket-owner.ts";

/** Everything that a service keeps, open. */
export interface OpenStorage {
  stores: Stores;
  blobs: BlobStore;
  /** Shows the time that counts for all processes: that of the database, if it has a clock of its own. */
  clock: Clock;
  /** Problems of the files of the database itself, a line each. */
  integrityProblems(): Promise<string[]>;
  /** What an operator should know of the database, in sentences that do not name it. */
  warnings: SqlDatabase["warnings"];
  /** Throws `INVALID_CONFIG` for the bucket of another database. */
  refuseForeignBucket(): Promise<void>;
  /** Begins to hear the notices of other processes; null where there are none. */
  listen: ((onNotice: (text: string) => void) => Notices) | null;
  close(): Promise<void>;
}

interface StorageOptions {
  /** The data directory: SQLite and files are in it, and bytes on their way to a bucket. */
  directory: string;
  clock?: Clock;
  /** See `openSqlite`. */
  onBroken?: ((cause: Error) => void) | undefined;
  /** See `openPostgres`. */
  hurry?: AbortSignal;
  isPatient?: boolean;
}

/**
 * Opens the database and the images of a service, without owning them; those of a data directory are made when there are
 * none. Throws `STORAGE_FAILED` when the file of a database is damaged, or is missing although images exist, or when a
 * database on another machine cannot be reached; and `INVALID_CONFIG` for a directory whose data was moved away, and for
 * a bucket without keys. See also `migrate`.
 */
export async function openStorage(
  places: StoragePlaces,
  { directory, clock = systemClock, ...options }: StorageOptions,
): Promise<OpenStorage> {
  refuseMoved(directory, places);
  if (places.database.kind === "sqlite" || places.blobs.kind === "files") await makeDataDirectory(directory);
  const closing = new AbortController();
  // Every pause between two attempts listens to it, and Node would warn of the eleventh listener.
  setMaxListeners(0, closing.signal);
  // Before the database, which would be made for a service that has no keys.
  const blobs = await openBlobs(places.blobs, directory, closing.signal);
  const database = await openDatabase(places.database, directory, clock, options);
  try {
    const { database: place } = places;
    const stores = sqlStores(database);
    let listen: OpenStorage["listen"] = null;
    if (place.kind === "postgres") {
      const { openNotices } = await import("../../storage/dialects/postgres-notices.ts");
      listen = (onNotice) => openNotices(place.url, clock, onNotice);
    }
    return {
      listen,
      stores,
      blobs,
      refuseForeignBucket: () => refuseForeignBucket(places, { stores, blobs }),
      clock: database.clock,
      warnings: database.warnings,
      integrityProblems: async () => database.integrityProblems(),
      close: async () => {
        closing.abort();
        await database.close();
      },
    };
  } catch (error) {
    await database.close();
    throw error;
  }
}

/**
 * Makes a data directory that of this process and opens the storage of its service. Throws as `openStorage` does,
 * `DATA_DIRECTORY_IN_USE` when another process owns the directory, and `INVALID_CONFIG` for the bucket of another database.
 */
export async function openOwnStorage(places: StoragePlaces, options: StorageOptions): Promise<OpenStorage> {
  const { directory } = options;
  await makeDataDirectory(directory);
  const release = await acquireDataLockPatiently(directory, systemClock);
  let opened: OpenStorage | null = null;
  const close = async () => {
    await opened?.close().finally(release);
  };
  try {
    await removePartialFiles(directory);
    await takeBackup(directory);
    opened = await openStorage(places, options);
    await claimBucket(places, opened);
    await opened.blobs.removeDrafts();
    return { ...opened, close };
  } catch (error) {
    await (opened === null ? release() : close());
    throw error;
  }
}

/** Opens the images of one place. When `closed` aborts, all requests to a bucket end. */
export async function openBlobs(
  place: BlobsPlace,
  directory: string,
  closed?: AbortSignal,
): Promise<BlobStore> {
  if (place.kind === "files") return fileBlobs(join(directory, DATA_FILES.blobs));
  hideNodeWarningOfAws();
  const { roleKeys, s3Blobs } = await import("../../storage/blobs/s3.ts");
  const keys = place.accessKeyId === undefined ? await roleKeys(place.name) : undefined;
  return s3Blobs({ ...place, roleKeys: keys, scratchDirectory: join(directory, DATA_FILES.scratch), closed });
}

/** Opens one database, with all tables. Throws as `openStorage` does. */
export async function openDatabase(
  place: DatabasePlace,
  directory: string,
  clock: Clock,
  { onBroken, hurry, isPatient }: Pick<StorageOptions, "onBroken" | "hurry" | "isPatient"> = {},
): Promise<SqlDatabase> {
  if (place.kind === "sqlite") return openLocalDatabase(directory, clock, onBroken);
  const { openPostgres } = await import("../../storage/dialects/postgres.ts");
  try {
    return await migrated(await openPostgres({ ...place, hurry, isPatient }, clock));
  } catch (error) {
    throw namedError(error, place.name);
  }
}

/** Names the database in an error, without its secrets. */
function namedError(error: unknown, name: string): unknown {
  if (!(error instanceof ImgbatchError)) return error;
  return new ImgbatchError(error.code, `${name}: ${error.message}`, { advice: error.advice, cause: error });
}

async function openLocalDatabase(
  directory: string,
  clock: Clock,
  onBroken: StorageOptions["onBroken"],
): Promise<SqlDatabase> {
  const file = join(directory, DATA_FILES.database);
  await refuseLostDatabase(file, directory);
  try {
    return await migrated(openSqlite(file, clock, { onBroken, lockFile: join(directory, DATA_FILES.lock) }));
  } catch (cause) {
    const damage = cause instanceof StorageUnavailable ? cause.cause : cause;
    if (!isDatabaseDamage(damage)) throw namedError(cause, file);
    throw storageFailure(directory, damage);
  }
}

async function migrated(database: SqlDatabase): Promise<SqlDatabase> {
  try {
    await migrate(database);
    return database;
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** A new database in place of a lost one would have other balances, and would not know the stored images. */
async function refuseLostDatabase(file: string, directory: string): Promise<void> {
  if (existsSync(file) && statSync(file).size > 0) return;
  const images = await readdir(join(directory, DATA_FILES.blobs, "outputs")).catch(() => []);
  if (images.length === 0) return;
  const message = `${file} is missing or empty, but ${directory} holds images of batches: put the database back, or move the directory away.`;
  throw new ImgbatchError("STORAGE_FAILED", message);
}

/**
 * Makes a backup the data directory of a service: later backups leave it alone. Throws `INVALID_CONFIG` for a backup that did
 * not come to its end, where a service would begin from nothing.
 */
async function takeBackup(directory: string): Promise<void> {
  const file = join(directory, DATA_FILES.backup);
  if (!existsSync(file)) return;
  const { of_ms: atMs } = fieldsOf(JSON.parse(readFileSync(file, "utf8"))) ?? {};
  if (typeof atMs !== "number" && !existsSync(join(directory, DATA_FILES.database))) {
    const message = `${directory} is a backup that was not finished.`;
    const advice = `run the same \`${programName()} admin backup\` again, or name another directory`;
    throw new ImgbatchError("INVALID_CONFIG", message, { advice });
  }
  await rm(file, { force: true });
}

/** `moved.json`: where the data of a directory went. The old data stays, and no service uses it. */
export interface Moved {
  /** `postgres://host/database`; null: the database has stayed. */
  database: string | null;
  /** `s3://bucket/prefix`. */
  blobs: string;
  /** Null while the move has not ended. */
  moved_at: number | null;
}

/** Null for a directory whose data is its own. Throws `STORAGE_FAILED` for a file that cannot be read. */
export function readMoved(directory: string): Moved | null {
  const file = join(directory, DATA_FILES.moved);
  try {
    const { database, blobs, moved_at } = fieldsOf(JSON.parse(readFileSync(file, "utf8"))) ?? {};
    return {
      database: typeof database === "string" ? database : null,
      blobs: String(blobs),
      moved_at: typeof moved_at === "number" ? moved_at : null,
    };
  } catch (cause) {
    if (systemCodeOf(cause) === "ENOENT") return null;
    throw new ImgbatchError("STORAGE_FAILED", `${file} cannot be read.`, { cause });
  }
}

export function writeMoved(directory: string, moved: Moved): Promise<void> {
  return writeFileDurably(join(directory, DATA_FILES.moved), `${JSON.stringify(moved)}\n`);
}

/**
 * Throws `INVALID_CONFIG`, which names the new places, for data of a directory that is being moved, at either side, and for
 * the old places of data that was moved.
 */
export function refuseMoved(directory: string, { database, blobs }: StoragePlaces): void {
  const moved = readMoved(directory);
  if (moved === null) return;
  const flags = flagsOf(moved);
  const file = join(directory, DATA_FILES.moved);
  if (moved.moved_at === null) {
    const message = `The data of ${directory} is being moved to ${placeOf(moved)}.`;
    const advice = `finish it: ${programName()} admin move --data ${directory} ${flags}; or give it up: remove ${file}`;
    throw new ImgbatchError("INVALID_CONFIG", message, { advice });
  }
  if (blobs.kind !== "files" && (database.kind !== "sqlite" || moved.database === null)) return;
  const message = `The data of ${directory} was moved to ${placeOf(moved)}.`;
  const advice = `add ${flags}, or the same under "storage" in the configuration; to go on with the old data, remove ${file}`;
  throw new ImgbatchError("INVALID_CONFIG", message, { advice });
}

export function placeOf({ database, blobs }: Pick<Moved, "database" | "blobs">): string {
  return database === null ? blobs : `${database} and ${blobs}`;
}

function flagsOf({ database, blobs }: Moved): string {
  return `${database === null ? "" : `--database ${database} `}--blobs ${blobs}`;
}

/** Makes a data directory that only its user can read. Throws `SAVE_FAILED` with the reason of the system. */
async function makeDataDirectory(directory: string): Promise<void> {
  await makeDirectory(directory, 0o700).catch((cause) => {
    const message = `The data directory ${directory} cannot be made: ${systemCodeOf(cause)}.`;
    throw new ImgbatchError("SAVE_FAILED", message, {
      cause,
      advice: "choose another directory with --data",
    });
  });
}
