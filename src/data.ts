import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DATA_FILES } from "./contract/data-directory.ts";
import type { BlobStore } from "./domain/ports/blob-store.ts";
import type { Stores } from "./domain/ports/stores.ts";
import { type Clock, systemClock } from "./kernel/clock.ts";
import { fileBlobs } from "./storage/blobs/file-blobs.ts";
import { openSqlite } from "./storage/dialects/sqlite.ts";
import { migrate } from "./storage/migrations/migrate.ts";
import { sqlStores } from "./storage/stores.ts";

/** The database and the files of a data directory, open. */
export interface OpenData {
  stores: Stores;
  blobs: BlobStore;
  /** Problems of the database file itself, a line each. */
  integrityProblems(): string[];
  close(): void;
}

/** Opens (or makes) the database and the blobs of a data directory, without owning it. */
export async function openDataDirectory(directory: string, clock: Clock = systemClock): Promise<OpenData> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const database = openSqlite(join(directory, DATA_FILES.database), clock);
  try {
    await migrate(database);
  } catch (error) {
    database.close();
    throw error;
  }
  return {
    stores: sqlStores(database),
    blobs: fileBlobs(join(directory, DATA_FILES.blobs)),
    integrityProblems: () => database.integrityProblems(),
    close: () => database.close(),
  };
}
