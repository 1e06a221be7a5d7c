import { existsSync, statSync } from "node:fs";
import { readdir, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { DATA_FILES } from "../contract/data-directory.ts";
import { ImgbatchError, isDatabaseDamage } from "../contract/errors.ts";
import type { BlobStore } from "../domain/ports/blob-store.ts";
import { StorageUnavailable } from "../domain/ports/storage-unavailable.ts";
import type { Stores } from "../domain/ports/stores.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { systemCodeOf } from "../kernel/files/disk-full.ts";
import { makeDirectory } from "../kernel/files/make-directory.ts";
import { fileBlobs } from "../storage/blobs/file-blobs.ts";
import type { SqlDatabase } from "../storage/dialects/sql-session.ts";
import { openSqlite } from "../storage/dialects/sqlite.ts";
import { storageFailure } from "../storage/disk-trouble.ts";
import { migrate } from "../storage/migrate.ts";
import { sqlStores } from "../storage/stores.ts";

/** The database and the files of a data directory, open. */
export interface OpenData {
  stores: Stores;
  blobs: BlobStore;
  /** Problems of the database file itself, a line each. */
  integrityProblems(): Promise<string[]>;
  close(): Promise<void>;
}

/**
 * Opens (or makes) the database and the blobs of a data directory, without owning it. Throws `STORAGE_FAILED` when the
 * database file is damaged, or is missing although images exist. `onBroken`: see `openSqlite`.
 */
export async function openDataDirectory(
  directory: string,
  clock: Clock = systemClock,
  onBroken?: (cause: Error) => void,
): Promise<OpenData> {
  await makeDataDirectory(directory);
  const file = join(directory, DATA_FILES.database);
  await refuseLostDatabase(file, directory);
  const database = await openDatabase(file, clock, onBroken);
  return {
    stores: sqlStores(database),
    blobs: fileBlobs(join(directory, DATA_FILES.blobs)),
    integrityProblems: () => database.integrityProblems(),
    close: () => database.close(),
  };
}

/** Makes a data directory that only its user can read. Throws `SAVE_FAILED` with the reason of the system. */
export async function makeDataDirectory(directory: string): Promise<void> {
  await makeDirectory(directory, 0o700).catch((cause) => {
    const message = `The data directory ${directory} cannot be made: ${systemCodeOf(cause)}.`;
    throw new ImgbatchError("SAVE_FAILED", message, {
      cause,
      advice: "choose another directory with --data",
    });
  });
}

async function openDatabase(
  file: string,
  clock: Clock,
  onBroken: ((cause: Error) => void) | undefined,
): Promise<SqlDatabase> {
  try {
    const database = openSqlite(file, clock, { onBroken, lockFile: join(dirname(file), DATA_FILES.lock) });
    await migrate(database).catch(async (error) => {
      await database.close();
      throw error;
    });
    return database;
  } catch (cause) {
    const damage = cause instanceof StorageUnavailable ? cause.cause : cause;
    if (!isDatabaseDamage(damage)) throw cause;
    throw storageFailure(dirname(file), damage);
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

/** Returns the bytes that may still be written to the disk of a directory. */
export async function freeBytesOf(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}
