import type { StoragePlaces } from "../../../config/storage-places.ts";
import { errorEntry, ImgbatchError } from "../../../contract/errors.ts";
import type { OpenStorage } from "../../../service/storage/open-storage.ts";
import { type Finding, fail, ok, warn } from "./finding.ts";

/**
 * Checks a shared database, the processes that are at work on it, and a bucket. The parts in the data directory have
 * checks of their own.
 */
export async function checkStorage(storage: StoragePlaces, directory: string): Promise<Finding[]> {
  const { database, blobs } = storage;
  if (database.kind === "sqlite" && blobs.kind === "files") return [];
  // It needs the database library, which may not load on this system.
  const { openStorage } = await import("../../../service/storage/open-storage.ts");
  let open: OpenStorage;
  try {
    open = await openStorage(storage, { directory });
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    const { exit } = errorEntry(error.code);
    return [fail("database", exit, error.message, error.advice ?? "check storage of the configuration")];
  }
  try {
    return [
      ...(database.kind === "postgres" ? await checkDatabase(open, database.name) : []),
      ...(blobs.kind === "s3" ? [await checkBucket(open, blobs.name)] : []),
    ];
  } finally {
    await open.close();
  }
}

async function checkDatabase({ stores, warnings }: OpenStorage, name: string): Promise<Finding[]> {
  try {
    await stores.write((tx) => tx.touch());
  } catch (error) {
    const message = `${name} cannot be written: ${reasonOf(error)}`;
    return [fail("database", "saving", message, "check the disk and the settings of the database")];
  }
  const roles = (await stores.read.workers.list()).map(({ role }) => role);
  const takers = roles.filter((role) => role !== "worker").length;
  const makers = roles.filter((role) => role !== "api").length;
  const found = `processes: ${takers} take requests, ${makers} make images`;
  const processes =
    takers > 0 && makers > 0
      ? ok("processes", found)
      : warn("processes", found, "start `imgbatch serve --role api` and `imgbatch serve --role worker`");
  const doubts = warnings.map(({ message, advice }) => warn("database", message, advice));
  return [ok("database", `${name} can be written`), ...doubts, processes];
}

async function checkBucket(open: OpenStorage, name: string): Promise<Finding> {
  try {
    await open.blobs.list("ready/");
    await open.refuseForeignBucket();
    return ok("bucket", `${name} answers`);
  } catch (error) {
    if (error instanceof ImgbatchError) return fail("bucket", "usage", error.message, error.advice ?? "");
    const advice = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and storage.s3 of the configuration";
    return fail("bucket", "saving", `${name} cannot be used: ${reasonOf(error)}`, advice);
  }
}

/** The reason for the operator, which is in the cause where the message is for callers. */
function reasonOf(error: unknown): string {
  const { cause, message } = error as Error;
  return cause instanceof Error ? cause.message : message;
}
