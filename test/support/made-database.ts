import { copyFile, mkdtemp, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LOCAL_STORAGE } from "../../src/config/storage-places.ts";
import { DATA_FILES } from "../../src/contract/data-directory.ts";
import { openStorage } from "../../src/service/storage/open-storage.ts";
import { TEST_STORES } from "./cluster/test-stores.ts";
import { SUITE_ROOT } from "./global-setup.ts";

let made: Promise<string> | null = null;

/** Puts a database with all tables, and no rows, into an empty data directory: a service takes ten times as long to make it. */
export async function putDatabase(directory: string): Promise<void> {
  const entries = await readdir(directory).catch(() => null);
  if (TEST_STORES !== "local" || entries?.length !== 0) return;
  made ??= makeDatabase();
  await copyFile(await made, join(directory, DATA_FILES.database));
}

async function makeDatabase(): Promise<string> {
  const directory = await mkdtemp(join(process.env[SUITE_ROOT] ?? tmpdir(), "imgbatch-tables-"));
  await (await openStorage(LOCAL_STORAGE, { directory })).close();
  return join(directory, DATA_FILES.database);
}
